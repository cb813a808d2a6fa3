// The sign-in, which lies over the page: what was typed beneath it stays.
import { useEffect, useRef, useState } from "react";
import { useText } from "../i18n";
import css from "./SignIn.module.css";
import { signIn, whyAbsent } from "./token";

export function SignIn() {
  const text = useText();
  const dialog = useRef<HTMLDialogElement>(null);
  const [token, setToken] = useState("");
  const open = () => {
    if (dialog.current && !dialog.current.open) dialog.current.showModal();
  };
  useEffect(() => {
    if (dialog.current && !dialog.current.open) dialog.current.showModal();
  }, []);
  return (
    <dialog
      ref={dialog}
      className={css.dialog}
      aria-labelledby="sign-in"
      onCancel={(event) => event.preventDefault()}
      onClose={open}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim()) signIn(token);
        }}
      >
        <h1 id="sign-in">{text.signIn.title}</h1>
        {whyAbsent() === "refused" ? <p role="alert">{text.signIn.refused}</p> : null}
        <p>{text.signIn.help}</p>
        <label>
          {text.signIn.token}
          <input
            type="password"
            autoComplete="current-password"
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </label>
        <button type="submit" data-kind="main">
          {text.signIn.go}
        </button>
      </form>
    </dialog>
  );
}
