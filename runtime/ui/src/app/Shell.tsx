// The frame of all pages: the lifeforms and the pages of the chosen one on the left, the page on the right.
import { Link, Outlet, useParams, useRouterState } from "@tanstack/react-router";
import { Menu } from "lucide-react";
import { useEffect, useState, useSyncExternalStore } from "react";
import { useApprovals, useCanvases, useLifeforms, useMe } from "../api/queries";
import { LANGUAGES, type Language, speak, useLanguage, useText } from "../i18n";
import { State } from "../parts/Panel";
import { SignIn } from "../session/SignIn";
import { currentToken, onToken, signOut } from "../session/token";
import css from "./Shell.module.css";
import { SCHEMES, type Scheme, setScheme, useScheme } from "./scheme";

export const CHAT = "canvas_chat_main";

export function toneOf(status: string): "good" | "warn" | "bad" | "plain" {
  return ({ running: "good", dormant: "warn", terminated: "bad" } as const)[status as "running"] ?? "plain";
}

function useToken() {
  return useSyncExternalStore(onToken, currentToken);
}

function Lifeforms() {
  const text = useText();
  const chosen = useParams({ strict: false }).lf;
  const found = useLifeforms();
  return (
    <ul className={css.list}>
      {found.data?.lifeforms.map((life) => (
        <li key={life.id}>
          <Link to="/l/$lf" params={{ lf: life.id }} className={css.link} activeOptions={{ exact: true }}>
            <span>{life.name}</span> <State tone={toneOf(life.status)}>{text.life.status[life.status]}</State>
          </Link>
          {life.id === chosen ? <Pages lf={life.id} /> : null}
        </li>
      ))}
    </ul>
  );
}

function Pages({ lf }: { lf: string }) {
  const text = useText();
  const canvases = useCanvases(lf);
  return (
    <ul className={css.pages}>
      {(canvases.data?.canvases ?? []).map((canvas) => (
        <li key={canvas.id}>
          <Link to="/l/$lf/c/$canvas" params={{ lf, canvas: canvas.id }} className={css.link}>
            {canvas.id === CHAT ? text.pages.chat : canvas.title || canvas.id}
          </Link>
        </li>
      ))}
      {(["live", "goals", "memory", "graph", "nutrients", "calls", "why", "kip"] as const).map((page) => (
        <li key={page}>
          <Link to={`/l/$lf/${page}`} params={{ lf }} className={css.link}>
            {text.pages[page]}
          </Link>
        </li>
      ))}
    </ul>
  );
}

function Settings() {
  const text = useText();
  const language = useLanguage();
  const scheme = useScheme();
  const me = useMe();
  return (
    <div className={css.settings}>
      {me.data ? <p>{text.signIn.as(me.data.principal)}</p> : null}
      <label>
        <span className="visually-hidden">{text.app.language}</span>
        <select value={language} onChange={(event) => speak(event.target.value as Language)}>
          {Object.entries(LANGUAGES).map(([id, name]) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        <span className="visually-hidden">{text.app.scheme}</span>
        <select value={scheme} onChange={(event) => setScheme(event.target.value as Scheme)}>
          {SCHEMES.map((one) => (
            <option key={one} value={one}>
              {text.app.schemes[one]}
            </option>
          ))}
        </select>
      </label>
      <button type="button" onClick={signOut}>
        {text.signIn.out}
      </button>
    </div>
  );
}

export function Shell() {
  const text = useText();
  const token = useToken();
  const [isOpen, setOpen] = useState(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const isOperator = useMe().data?.roles.includes("operator");
  const waiting = useApprovals().data?.approvals.length ?? 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the menu
  useEffect(() => setOpen(false), [path]);
  useEffect(() => {
    document.title = waiting ? `(${waiting}) lifeformd` : "lifeformd";
  }, [waiting]);
  return (
    <div className={css.shell}>
      <a className={css.skip} href="#content">
        {text.app.skip}
      </a>
      <header className={css.bar}>
        <button type="button" aria-expanded={isOpen} aria-controls="menu" onClick={() => setOpen(!isOpen)}>
          <Menu size={18} aria-hidden="true" />
          <span className="visually-hidden">{text.app.menu}</span>
        </button>
        <span>{text.app.name}</span>
      </header>
      <nav id="menu" className={css.nav} data-open={isOpen} aria-label={text.app.menu}>
        <Link to="/" className={css.link} activeOptions={{ exact: true }}>
          {text.pages.home}
        </Link>
        <Lifeforms />
        <ul className={css.list}>
          <li>
            <Link to="/inbox" className={css.link}>
              {text.pages.inbox} {waiting ? <strong className={css.count}>{waiting}</strong> : null}
            </Link>
          </li>
          <li>
            <Link to="/jobs" className={css.link} search={{}}>
              {text.pages.jobs}
            </Link>
          </li>
          {(["neurons", "fascicles", "knowledge"] as const).map((page) => (
            <li key={page}>
              <Link to={`/${page}`} className={css.link}>
                {text.pages[page]}
              </Link>
            </li>
          ))}
          {isOperator ? (
            <li>
              <Link to="/tokens" className={css.link}>
                {text.pages.tokens}
              </Link>
            </li>
          ) : null}
          <li>
            <Link to="/about" className={css.link}>
              {text.pages.about}
            </Link>
          </li>
        </ul>
        <Settings />
      </nav>
      <main id="content" className={css.main} tabIndex={-1}>
        <Outlet />
      </main>
      {token ? null : <SignIn />}
    </div>
  );
}
