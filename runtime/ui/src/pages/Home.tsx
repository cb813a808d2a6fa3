import { Link } from "@tanstack/react-router";
import { useHealth, useLifeforms } from "../api/queries";
import { toneOf } from "../app/Shell";
import { useFormats, useText } from "../i18n";
import { Heading, Panel, State } from "../parts/Panel";
import { Empty, Found } from "../parts/States";
import css from "./Home.module.css";

export function Home() {
  const text = useText();
  const { compact } = useFormats();
  const lifeforms = useLifeforms();
  const health = useHealth();
  return (
    <>
      <Heading title={text.pages.home} />
      <Found query={lifeforms}>
        {({ lifeforms }) =>
          lifeforms.length === 0 ? (
            <Empty>{text.life.none}</Empty>
          ) : (
            <ul className={css.cards}>
              {lifeforms.map((life) => (
                <li key={life.id} className={css.card}>
                  <Link to="/l/$lf" params={{ lf: life.id }}>
                    {life.name}
                  </Link>
                  <State tone={toneOf(life.status)}>{text.life.status[life.status]}</State>
                  <span>
                    {compact(life.nutrients.available.tokens)} {text.nutrients.available} · {text.life.mode[life.mode]}
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </Found>
      <div className={css.health}>
        <Panel title={text.about.health}>
          <Found query={health}>
            {(health) => (
              <p>
                <State tone={health.status === "ok" ? "good" : "bad"}>{health.status}</State>{" "}
                {health.thinks ? text.about.thinks : text.about.thinksNot}
              </p>
            )}
          </Found>
        </Panel>
      </div>
    </>
  );
}
