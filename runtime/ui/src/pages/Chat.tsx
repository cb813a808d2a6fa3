// A talk: topics, messages as they are written, amendments, evidence, and the composer.
import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { ThumbsDown, ThumbsUp } from "lucide-react";
import { type ReactNode, useEffect, useLayoutEffect, useRef, useState } from "react";
import { VList, type VListHandle } from "virtua";
import { api, type Canvas, data } from "../api/client";
import { useEvidence, useLifeform } from "../api/queries";
import { toneOf } from "../app/Shell";
import { draftKey, type Outgoing, send, sendAgain, settle, useOutbox } from "../canvas/outbox";
import { isAtEnd, newBelow } from "../canvas/scroll";
import { type Folded, inOrder, type Message, type Topic, textOf } from "../canvas/state";
import { useCanvas } from "../canvas/useCanvas";
import { useFormats, useText } from "../i18n";
import { Markdown, visible } from "../markdown/Markdown";
import { CopyMenu } from "../parts/Copy";
import { State } from "../parts/Panel";
import { Empty, Failure, Found } from "../parts/States";
import { newId } from "../session/id";
import css from "./Chat.module.css";

const HELPED = "👍";
const FAILED = "👎";

function place(lf: string, canvas: Canvas, topic: string, message: string) {
  return { id: lf, canvas: canvas.id, topic, message };
}

function Evidence({ lf, canvas, topic, message }: { lf: string; canvas: Canvas; topic: string; message: Message }) {
  const text = useText();
  const [isOpen, open] = useState(false);
  const evidence = useEvidence(lf, canvas.id, topic, message.id, isOpen);
  return (
    <details onToggle={(event) => open(event.currentTarget.open)}>
      <summary>{text.chat.evidence(message.rests_on?.length ?? 0)}</summary>
      <Found query={evidence}>
        {({ rests_on }) => {
          const shown = rests_on.map((one) => {
            const concept = one.concept as
              | { attributes?: { statement?: string }; metadata?: { author?: string } }
              | null
              | undefined;
            const record = one.record as { content?: string; owner?: string } | null | undefined;
            return {
              id: one.id,
              words: concept?.attributes?.statement ?? record?.content,
              who: concept?.metadata?.author ?? record?.owner,
            };
          });
          const known = shown.filter((one) => one.words);
          if (!known.length) return <Empty>{text.chat.noEvidence}</Empty>;
          return (
            <ul>
              {known.map((one) => (
                <li key={one.id}>
                  “{visible(one.words ?? "")}” ({one.who})
                </li>
              ))}
            </ul>
          );
        }}
      </Found>
    </details>
  );
}

/** The amendments that are being written, by message: a row that is scrolled away keeps its text. */
const amendments = new Map<string, { content: string; base: number }>();

function Amend({
  lf,
  canvas,
  topic,
  message,
  done,
}: {
  lf: string;
  canvas: Canvas;
  topic: string;
  message: Message;
  done: () => void;
}) {
  const text = useText();
  const begun = amendments.get(message.id) ?? { content: message.content, base: message.rev };
  const [content, setContent] = useState(begun.content);
  const end = () => {
    amendments.delete(message.id);
    done();
  };
  const save = useMutation({
    mutationFn: () =>
      data(
        api.PATCH("/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}", {
          params: { path: place(lf, canvas, topic, message.id) },
          body: { content, base_rev: begun.base },
        }),
      ),
    onSuccess: end,
  });
  return (
    <form
      className={css.amend}
      onSubmit={(event) => {
        event.preventDefault();
        if (content.trim() && !save.isPending) save.mutate();
      }}
    >
      <textarea
        aria-label={text.chat.amend}
        value={content}
        onChange={(event) => {
          setContent(event.target.value);
          amendments.set(message.id, { content: event.target.value, base: begun.base });
        }}
      />
      <button type="submit" data-kind="main" disabled={save.isPending}>
        {text.chat.save}
      </button>
      <button type="button" onClick={end}>
        {text.chat.cancel}
      </button>
      {save.error ? <Failure error={save.error} /> : null}
    </form>
  );
}

interface Shown {
  lf: string;
  canvas: Canvas;
  topic: string;
  folded: Folded;
  nameOf: (who: string) => string;
  reply: (message: Message) => void;
}

function Row({ message, lf, canvas, topic, folded, nameOf, reply }: Shown & { message: Message }) {
  const text = useText();
  const { time, moment } = useFormats();
  const [isAmending, amend] = useState(amendments.has(message.id));
  const isMine = message.sender === folded.me;
  const isAnswer = message.sender.startsWith("lifeform:");
  const revisions = Object.values(message.revisions ?? {});
  const path = place(lf, canvas, topic, message.id);
  const chosen = (emoji: string) => Boolean(folded.me && message.reactions?.[emoji]?.includes(folded.me));
  const act = useMutation({
    mutationFn: async (what: "retract" | "interrupt" | typeof HELPED | typeof FAILED) => {
      if (what === "retract")
        return data(
          api.DELETE("/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}", { params: { path } }),
        );
      if (what === "interrupt")
        return data(
          api.POST("/v1/lifeforms/{id}/canvases/{canvas}/topics/{topic}/messages/{message}/interrupt", {
            params: { path },
          }),
        );
      const ops = [{ kind: "message.react", topic, id: message.id, reaction: what, on: !chosen(what) }];
      return data(
        api.POST("/v1/lifeforms/{id}/canvases/{canvas}/ops", {
          params: { path: { id: lf, canvas: canvas.id } },
          body: { ops } as never,
        }),
      );
    },
  });
  const known = message.reply_to ? folded.state.topics[topic]?.messages[message.reply_to] : undefined;
  const isSaid = message.status === "final" || message.status === "interrupted";
  return (
    <article
      className={css.row}
      data-mine={isMine}
      data-status={message.status}
      data-system={message.sender.startsWith("system:")}
      id={`m-${message.id}`}
    >
      <header className={css.who}>
        <strong>{nameOf(message.sender)}</strong>
        <time dateTime={message.at} title={moment(message.at)}>
          {time(message.at)}
        </time>
        {message.status === "streaming" ? <span>{text.chat.writing}</span> : null}
        {message.status === "interrupted" ? (
          <span>
            {text.chat.interrupted} {message.interrupted_by?.reason}
          </span>
        ) : null}
        {message.supplements ? <span>{text.chat.supplements}</span> : null}
        {revisions.length && message.status !== "retracted" ? <span>{text.chat.edited(revisions.length)}</span> : null}
        {known && !isAnswer ? (
          <span className={css.quote}>
            {text.chat.replyTo} {nameOf(known.sender)}: {visible(known.content.slice(0, 80))}
          </span>
        ) : null}
      </header>
      {isAmending ? (
        <Amend lf={lf} canvas={canvas} topic={topic} message={message} done={() => amend(false)} />
      ) : message.status === "retracted" ? (
        <p className={css.gone}>{message.purged_by ? text.chat.purged : text.chat.retracted}</p>
      ) : (
        <Markdown text={textOf(message, folded.partial)} />
      )}
      {revisions.length ? (
        <details>
          <summary>{text.chat.history}</summary>
          {revisions.map((one) => (
            <p key={one.n}>
              <del>{visible(one.content)}</del> {one.reason ? `(${visible(one.reason)})` : null}
            </p>
          ))}
        </details>
      ) : null}
      <footer className={css.acts}>
        {isAnswer && message.rests_on?.length ? (
          <Evidence lf={lf} canvas={canvas} topic={topic} message={message} />
        ) : null}
        {isSaid ? (
          <Link to="/l/$lf/why" params={{ lf }} search={{ from: `canvas:${lf}/${canvas.id}@${message.rev}` }}>
            {text.chat.why}
          </Link>
        ) : null}
        {isAnswer && isSaid
          ? ([HELPED, FAILED] as const).map((emoji) => (
              <button
                key={emoji}
                type="button"
                aria-pressed={chosen(emoji)}
                aria-label={emoji === HELPED ? text.chat.helped : text.chat.failed}
                disabled={act.isPending}
                onClick={() => act.mutate(emoji)}
              >
                {emoji === HELPED ? (
                  <ThumbsUp size={15} aria-hidden="true" />
                ) : (
                  <ThumbsDown size={15} aria-hidden="true" />
                )}
              </button>
            ))
          : null}
        {message.status === "streaming" ? (
          <button type="button" onClick={() => act.mutate("interrupt")}>
            {text.chat.interrupt}
          </button>
        ) : null}
        {isSaid ? (
          <button type="button" onClick={() => reply(message)}>
            {text.chat.reply}
          </button>
        ) : null}
        {isMine && message.status === "final" && !isAmending ? (
          <>
            <button
              type="button"
              onClick={() => {
                amendments.set(message.id, { content: message.content, base: message.rev });
                amend(true);
              }}
            >
              {text.chat.amend}
            </button>
            <button type="button" disabled={act.isPending} onClick={() => act.mutate("retract")}>
              {text.chat.retract}
            </button>
          </>
        ) : null}
      </footer>
      {act.error ? <Failure error={act.error} /> : null}
    </article>
  );
}

function Composer({
  draft,
  send,
  isReady,
  answers,
  cancelReply,
}: {
  /** The name under which the tab keeps what is being written. */
  draft: string;
  send: (content: string) => void;
  isReady: boolean;
  answers: ReactNode;
  cancelReply: () => void;
}) {
  const text = useText();
  const [content, setContent] = useState(() => sessionStorage.getItem(draft) ?? "");
  const isComposing = useRef(false);
  const write = (next: string) => {
    setContent(next);
    if (next) sessionStorage.setItem(draft, next);
    else sessionStorage.removeItem(draft);
  };
  const submit = () => {
    if (!content.trim() || !isReady) return;
    send(content);
    write("");
  };
  return (
    <form
      className={css.composer}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {answers ? (
        <p className={css.quote}>
          {answers}{" "}
          <button type="button" onClick={cancelReply}>
            {text.chat.cancel}
          </button>
        </p>
      ) : null}
      <textarea
        rows={2}
        aria-label={text.chat.write}
        placeholder={text.chat.write}
        value={content}
        onChange={(event) => write(event.target.value)}
        onCompositionStart={() => {
          isComposing.current = true;
        }}
        onCompositionEnd={() => {
          isComposing.current = false;
        }}
        onKeyDown={(event) => {
          // Enter ends a word that is being composed (Chinese, Japanese), and not the message.
          const composes = isComposing.current || event.nativeEvent.isComposing || event.keyCode === 229;
          if (event.key === "Enter" && !event.shiftKey && !composes) {
            event.preventDefault();
            submit();
          }
        }}
      />
      <button type="submit" data-kind="main" disabled={!content.trim() || !isReady}>
        {text.chat.send}
      </button>
      <small>{text.chat.keys}</small>
    </form>
  );
}

function Messages({
  shown,
  pending,
  retry,
  drop,
  edit,
  wanted,
}: {
  shown: ReactNode[];
  pending: Outgoing[];
  retry: (one: Outgoing) => void;
  drop: (one: Outgoing) => void;
  edit: (one: Outgoing) => void;
  wanted: number;
}) {
  const text = useText();
  const list = useRef<VListHandle>(null);
  const [atEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(shown.length);
  const count = shown.length + pending.length;
  const follows = useRef(true);
  const lastOffset = useRef(0);
  useLayoutEffect(() => {
    if (wanted >= 0) {
      follows.current = false;
      list.current?.scrollToIndex(wanted, { align: "center" });
    }
  }, [wanted]);
  // After each change: at the end it follows, and anywhere else nothing moves.
  useEffect(() => {
    if (follows.current && count) list.current?.scrollToIndex(count - 1, { align: "end" });
    if (atEnd) setSeen(count);
  });
  const below = newBelow(seen, count, atEnd);
  return (
    <div className={css.messages}>
      <VList
        ref={list}
        className={css.list}
        role="log"
        aria-live="off"
        aria-label={text.pages.chat}
        tabIndex={0}
        onScroll={(offset) => {
          const handle = list.current;
          if (!handle) return;
          const isThere = isAtEnd({
            scrollHeight: handle.scrollSize,
            scrollTop: handle.scrollOffset,
            clientHeight: handle.viewportSize,
          });
          // A row that grows is no reader who scrolls: only the way up leaves the end.
          if (isThere) follows.current = true;
          else if (offset < lastOffset.current) follows.current = false;
          lastOffset.current = offset;
          setAtEnd(isThere);
        }}
      >
        {shown}
        {pending.map((one) => (
          <article key={one.id} className={css.row} data-mine data-status="pending">
            <header className={css.who}>
              <span>{one.error ? text.chat.refused : text.chat.sending}</span>
            </header>
            <Markdown text={one.content} />
            {one.error ? (
              <>
                <Failure error={one.error} retry={() => retry(one)} />
                <button type="button" onClick={() => edit(one)}>
                  {text.chat.amend}
                </button>
                <button type="button" onClick={() => drop(one)}>
                  {text.chat.cancel}
                </button>
              </>
            ) : null}
          </article>
        ))}
      </VList>
      {below || !atEnd ? (
        <button
          type="button"
          className={css.below}
          onClick={() => {
            follows.current = true;
            list.current?.scrollToIndex(count - 1, { align: "end" });
          }}
        >
          {below ? text.chat.below(below) : text.chat.toEnd} ↓
        </button>
      ) : null}
    </div>
  );
}

export function Chat({ lf, canvas }: { lf: string; canvas: Canvas }) {
  const text = useText();
  const { topic: asked, msg } = useSearch({ from: "/l/$lf/c/$canvas" });
  const navigate = useNavigate({ from: "/l/$lf/c/$canvas" });
  const life = useLifeform(lf);
  const { folded, link } = useCanvas(lf, canvas.id);
  const here = { lf, canvas: canvas.id };
  const outbox = useOutbox(here);
  const [reply, setReply] = useState<Message | null>(null);
  const [draftTopic] = useState(() => newId("t_"));
  // The number of refused messages that came back to the composer, which then reads its draft anew.
  const [drafts, setDrafts] = useState(0);
  const topics = inOrder(folded.state.topics as Record<string, Topic>);
  const isThere = folded.epoch !== null;
  const latest = topics.at(-1)?.id;
  const chosen = asked ?? latest ?? draftTopic;
  const messages = inOrder(folded.state.topics[chosen]?.messages).filter(
    (one) => one.status !== "interrupted" || textOf(one, folded.partial) !== "",
  );
  // The topic that is written to stays, whatever opens meanwhile.
  useEffect(() => {
    if (!isThere || asked || !latest) return;
    const place = { lf, canvas: canvas.id };
    const [from, to] = [draftKey(place, draftTopic), draftKey(place, latest)];
    const draft = sessionStorage.getItem(from);
    if (draft && !sessionStorage.getItem(to)) sessionStorage.setItem(to, draft);
    sessionStorage.removeItem(from);
    navigate({ search: { topic: latest }, replace: true });
  }, [isThere, asked, latest, navigate, draftTopic, lf, canvas.id]);
  // What the canvas has is no longer on its way.
  useEffect(() => {
    settle({ lf, canvas: canvas.id }, (one) => Boolean(folded.state.topics[one.topic]?.messages[one.id]));
  }, [folded, lf, canvas.id]);
  const nameOf = (who: string) => {
    if (who === `lifeform:${lf}`) return life.data?.name ?? who;
    if (who.startsWith("system:")) return text.chat.system;
    return folded.state.users[who]?.name ?? who;
  };
  const open = (topic: string) => {
    setReply(null);
    navigate({ search: { topic } });
  };
  const isNew = (topic: string) => !folded.state.topics[topic];
  const say = (content: string) => {
    send(here, { id: newId("m_"), topic: chosen, content, replyTo: reply?.id }, isNew(chosen));
    if (!asked) open(chosen);
    setReply(null);
  };
  const drop = (dropped: Outgoing) => settle(here, (one) => one.id === dropped.id);
  const waiting = outbox.filter((one) => one.topic === chosen && !folded.state.topics[one.topic]?.messages[one.id]);
  const shown = messages.map((message) => (
    <Row
      key={message.id}
      message={message}
      lf={lf}
      canvas={canvas}
      topic={chosen}
      folded={folded}
      nameOf={nameOf}
      reply={setReply}
    />
  ));
  const answered = messages.findLast((one) => one.sender.startsWith("lifeform:") && one.status === "final");
  return (
    <div className={css.chat}>
      <aside className={css.topics} aria-label={text.chat.topics}>
        <div className={css.head}>
          <h1>{life.data?.name ?? text.pages.chat}</h1>
          <State tone={link === "live" ? "good" : "warn"}>{text.link[link]}</State>
          {life.data && life.data.status !== "running" ? (
            <State tone={toneOf(life.data.status)}>{text.life.status[life.data.status]}</State>
          ) : null}
        </div>
        <button type="button" onClick={() => open(newId("t_"))}>
          {text.chat.newTopic}
        </button>
        <ul>
          {topics.map((topic) => (
            <li key={topic.id}>
              <button type="button" aria-current={topic.id === chosen} onClick={() => open(topic.id)}>
                {visible(topic.title)} {topic.archived ? `(${text.chat.archived})` : null}
              </button>
            </li>
          ))}
        </ul>
        <CopyMenu id={chosen} path={`/v1/lifeforms/${lf}/canvases/${canvas.id}/topics/${chosen}/messages`} />
      </aside>
      <section className={css.talk} aria-label={text.pages.chat}>
        {shown.length + waiting.length === 0 ? (
          <div className={css.messages}>
            <Empty>{text.chat.none}</Empty>
          </div>
        ) : (
          <Messages
            key={chosen}
            shown={shown}
            pending={waiting}
            retry={(one) => sendAgain(here, one, isNew(one.topic))}
            drop={drop}
            edit={(one) => {
              sessionStorage.setItem(draftKey(here, one.topic), one.content);
              drop(one);
              setDrafts(drafts + 1);
            }}
            wanted={messages.findIndex((one) => one.id === msg)}
          />
        )}
        <p className="visually-hidden" role="status">
          {answered ? `${nameOf(answered.sender)}: ${answered.content.slice(0, 400)}` : ""}
        </p>
        <Composer
          key={`composer ${chosen} ${drafts}`}
          draft={draftKey(here, chosen)}
          send={say}
          isReady={isThere}
          answers={
            reply ? `${text.chat.replyTo} ${nameOf(reply.sender)}: ${visible(reply.content.slice(0, 80))}` : null
          }
          cancelReply={() => setReply(null)}
        />
      </section>
    </div>
  );
}
