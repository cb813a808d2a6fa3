import { type ReactNode, useId } from "react";
import css from "./Panel.module.css";

/** A titled part of a page. */
export function Panel({ title, acts, children }: { title: string; acts?: ReactNode; children: ReactNode }) {
  const id = useId();
  return (
    <section className={css.panel} aria-labelledby={id}>
      <div className={css.head}>
        <h2 id={id}>{title}</h2>
        {acts}
      </div>
      {children}
    </section>
  );
}

/** The heading of a page, with its acts. */
export function Heading({ title, children }: { title: ReactNode; children?: ReactNode }) {
  return (
    <div className={css.heading}>
      <h1>{title}</h1>
      <div className={css.acts}>{children}</div>
    </div>
  );
}

/** A word for a state, with a sign beside the colour. */
export function State({ tone, children }: { tone: "good" | "warn" | "bad" | "plain"; children: ReactNode }) {
  const sign = { good: "●", warn: "▲", bad: "✕", plain: "○" }[tone];
  return (
    <span className={css.state} data-tone={tone}>
      <span aria-hidden="true">{sign} </span>
      {children}
    </span>
  );
}
