/** Returns a new id. Unlike `crypto.randomUUID`, it also works where the page comes by plain HTTP. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(10));
  return prefix + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
