import { useHealth, useMe } from "../api/queries";
import { useText } from "../i18n";
import { CopyMenu } from "../parts/Copy";
import { Json } from "../parts/Json";
import { Heading, Panel } from "../parts/Panel";
import { Found } from "../parts/States";
import css from "./About.module.css";

export function About() {
  const text = useText();
  const health = useHealth();
  const me = useMe();
  return (
    <>
      <Heading title={text.pages.about}>
        <CopyMenu json={health.data} path="/health" />
      </Heading>
      <div className={css.grid}>
        <Panel title={text.about.health}>
          <Found query={health}>
            {(health) => (
              <>
                <p>
                  {text.about.version} {health.version}. {health.thinks ? text.about.thinks : text.about.thinksNot}
                </p>
                <Json value={{ parts: health.parts, models: health.models }} label={text.about.health} />
              </>
            )}
          </Found>
        </Panel>
        <Panel title={text.about.you}>
          <Found query={me}>
            {(me) => (
              <dl>
                <dt>{me.principal}</dt>
                <dd>
                  {text.about.roles}: {me.roles.join(", ")}
                </dd>
                <dd>
                  {text.about.scopes}: {me.scopes.join(", ") || "–"}
                </dd>
              </dl>
            )}
          </Found>
        </Panel>
      </div>
    </>
  );
}
