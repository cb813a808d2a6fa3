// The query language of the mind. A command of a link is put into the editor and not run; writes are off until they are allowed.
import { useMutation } from "@tanstack/react-query";
import { useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { kip } from "../api/queries";
import { useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Empty, Failure } from "../parts/States";
import css from "./Kip.module.css";

export function Kip() {
  const { lf } = useParams({ from: "/l/$lf/kip" });
  const { q } = useSearch({ from: "/l/$lf/kip" });
  const text = useText();
  const [command, setCommand] = useState(q ?? "");
  const [writes, allowWrites] = useState(false);
  const run = useMutation({
    mutationFn: (dryRun: boolean) => kip(lf, command, {}, dryRun ? { dry_run: true } : { readonly: !writes }),
  });
  const answer = run.data;
  const rows = Array.isArray(answer?.result) ? answer.result.length : undefined;
  return (
    <>
      <Heading title={text.pages.kip}>
        <CopyMenu json={answer} />
      </Heading>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          if (command.trim() && !run.isPending) run.mutate(false);
        }}
      >
        <label>
          {text.kip.command}
          <textarea
            rows={6}
            spellCheck={false}
            value={command}
            onChange={(event) => setCommand(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.currentTarget.form?.requestSubmit();
            }}
          />
        </label>
        <div className={css.acts}>
          <button type="submit" data-kind="main" disabled={run.isPending}>
            {text.kip.run}
          </button>
          <button type="button" disabled={run.isPending || !command.trim()} onClick={() => run.mutate(true)}>
            {text.kip.dryRun}
          </button>
          <label className={css.check}>
            <input type="checkbox" checked={writes} onChange={(event) => allowWrites(event.target.checked)} />{" "}
            {text.kip.write}
          </label>
        </div>
      </form>
      <Panel title={rows === undefined ? text.jobs.output : text.kip.rows(rows)}>
        {run.error ? <Failure error={run.error} /> : null}
        {answer?.error ? (
          <div role="alert">
            <p>
              {text.kip.refused}: {answer.error.message}
            </p>
            {answer.error.hint ? <p>{answer.error.hint}</p> : null}
          </div>
        ) : null}
        {answer && !answer.error ? <Json value={answer.result ?? null} label={text.jobs.output} /> : null}
        {!answer && !run.error ? <Empty>{text.kip.none}</Empty> : null}
      </Panel>
    </>
  );
}
