// The one scroll rule of a talk: at its end it follows, and anywhere else nothing moves.

/** The distance from the end, in pixels, within which a list counts as being at its end. */
export const AT_END = 80;

export function isAtEnd(list: { scrollHeight: number; scrollTop: number; clientHeight: number }): boolean {
  return list.scrollHeight - list.scrollTop - list.clientHeight < AT_END;
}

/** Returns the number of messages that came below since the reader left the end. */
export function newBelow(seen: number, count: number, atEnd: boolean): number {
  return atEnd ? 0 : Math.max(0, count - seen);
}
