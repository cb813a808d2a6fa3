// The tokens of the daemon: who has one, with which rights; a new one is shown once.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data } from "../api/client";
import { useMe } from "../api/queries";
import { useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Heading, Panel, State } from "../parts/Panel";
import { Failure, Found } from "../parts/States";
import css from "./Tokens.module.css";

const ROLES = ["participant", "observer", "operator"] as const;

export function Tokens() {
  const text = useText();
  const me = useMe();
  const client = useQueryClient();
  const found = useQuery({ queryKey: ["tokens"], queryFn: () => data(api.GET("/v1/tokens")), retry: false });
  const again = () => client.invalidateQueries({ queryKey: ["tokens"] });
  const revoke = useMutation({
    mutationFn: ({ principal, token }: { principal: string; token: string }) =>
      data(api.DELETE("/v1/tokens/{principal}", { params: { path: { principal }, query: { token } } })),
    onSuccess: again,
  });
  return (
    <>
      <Heading title={text.pages.tokens}>
        <CopyMenu json={found.data} path="/v1/tokens" />
      </Heading>
      <NewToken done={again} />
      <Panel title={text.pages.tokens}>
        {revoke.error ? <Failure error={revoke.error} /> : null}
        <Found query={found}>
          {({ principals }) => (
            <div className={css.wide}>
              <table>
                <thead>
                  <tr>
                    <th scope="col">{text.tokens.principal}</th>
                    <th scope="col">{text.about.roles}</th>
                    <th scope="col">{text.about.scopes}</th>
                    <th scope="col">{text.tokens.name}</th>
                    <th scope="col">{text.memory.more}</th>
                  </tr>
                </thead>
                <tbody>
                  {principals.map((one) => (
                    <tr key={one.token}>
                      <td>
                        {one.id} {one.id === me.data?.principal ? <State tone="plain">{text.about.you}</State> : null}
                      </td>
                      <td>{one.roles.join(", ")}</td>
                      <td>{one.scopes.join(", ")}</td>
                      <td>
                        <code>{one.token}</code>
                      </td>
                      <td>
                        <button
                          type="button"
                          data-kind="bad"
                          disabled={revoke.isPending}
                          onClick={() => {
                            const isOwn = one.id === me.data?.principal;
                            const sure = isOwn ? text.tokens.sureOwn(one.id) : text.tokens.sure(one.id);
                            if (confirm(sure)) revoke.mutate({ principal: one.id, token: one.token });
                          }}
                        >
                          {text.tokens.revoke}
                        </button>
                      </td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
        </Found>
      </Panel>
    </>
  );
}

function NewToken({ done }: { done: () => void }) {
  const text = useText();
  const [principal, setPrincipal] = useState("user:");
  const [role, setRole] = useState<(typeof ROLES)[number]>("participant");
  const [scopes, setScopes] = useState("");
  const add = useMutation({
    mutationFn: () =>
      data(
        api.POST("/v1/tokens", {
          body: { principal: principal.trim(), role, scopes: scopes.split(/[\s,]+/).filter(Boolean) },
        }),
      ),
    onSuccess: done,
  });
  return (
    <Panel title={text.tokens.add}>
      <form
        className={css.form}
        onSubmit={(event) => {
          event.preventDefault();
          if (!add.isPending) add.mutate();
        }}
      >
        <label>
          {text.tokens.principal}
          <input required value={principal} onChange={(event) => setPrincipal(event.target.value)} />
        </label>
        <label>
          {text.about.roles}
          <select value={role} onChange={(event) => setRole(event.target.value as (typeof ROLES)[number])}>
            {ROLES.map((role) => (
              <option key={role} value={role}>
                {text.tokens.roles[role]}
              </option>
            ))}
          </select>
        </label>
        <label>
          {text.about.scopes}
          <input value={scopes} placeholder="team:red, org:acme" onChange={(event) => setScopes(event.target.value)} />
        </label>
        <button type="submit" data-kind="main" disabled={add.isPending}>
          {text.tokens.add}
        </button>
      </form>
      {add.error ? <Failure error={add.error} /> : null}
      {add.data ? (
        <p role="status" className={css.new}>
          {text.tokens.once} <code>{add.data.token}</code>
        </p>
      ) : null}
    </Panel>
  );
}
