// What a part of a page shows while its data is not there: loading, an error with its cure, or nothing yet.
import type { UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { Problem } from "../api/client";
import { useText } from "../i18n";
import css from "./States.module.css";

const SKELETON_AFTER_MS = 150;

export function Loading() {
  const text = useText();
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), SKELETON_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className={css.loading} role="status" data-shown={isShown}>
      {text.states.loading}
    </div>
  );
}

export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const text = useText();
  const said = () => {
    // What a request without an answer throws; all else is a fault of the page.
    if (error instanceof TypeError) return text.errors.offline;
    if (!(error instanceof Problem)) return `${text.errors.unknown} ${error instanceof Error ? error.message : ""}`;
    if (error.status === 403) return `${text.states.refusedRight} ${error.detail}`;
    if (error.status === 404 || error.status === 410) return `${text.states.gone} ${error.detail}`;
    return error.detail;
  };
  return (
    <div className={css.failure} role="alert">
      <p>{said()}</p>
      {error instanceof Problem && error.hint ? <p className={css.hint}>{error.hint}</p> : null}
      {retry ? (
        <button type="button" onClick={retry}>
          {text.states.again}
        </button>
      ) : null}
    </div>
  );
}

export function Empty({ children }: { children: ReactNode }) {
  return <p className={css.empty}>{children}</p>;
}

/** Shows what a query found. Old data stays while new data is fetched, and while the daemon is away. */
export function Found<T>({ query, children }: { query: UseQueryResult<T>; children: (data: T) => ReactNode }) {
  if (query.data === undefined) {
    return query.error ? <Failure error={query.error} retry={() => query.refetch()} /> : <Loading />;
  }
  return (
    <>
      {query.error ? <Failure error={query.error} retry={() => query.refetch()} /> : null}
      <div data-stale={query.error ? true : undefined}>{children(query.data)}</div>
    </>
  );
}
