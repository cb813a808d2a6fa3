// The sentences of the page in three languages. The type checker demands each of them in each.
import { useSyncExternalStore } from "react";
import { en, type Sentences } from "./en";
import { ja } from "./ja";
import { zh } from "./zh";

export type Language = "en" | "zh" | "ja";

export const LANGUAGES: Record<Language, string> = { en: "English", zh: "中文", ja: "日本語" };
const ALL: Record<Language, Sentences> = { en, zh, ja };
const KEY = "lifeformd.language";
const listeners = new Set<() => void>();

function preferred(): Language {
  const kept = localStorage.getItem(KEY);
  const wanted = [kept, ...navigator.languages].map((one) => one?.slice(0, 2));
  return (wanted.find((one) => one && one in ALL) as Language | undefined) ?? "en";
}

let current: Language = preferred();
document.documentElement.lang = current;

export function speak(language: Language) {
  current = language;
  localStorage.setItem(KEY, language);
  document.documentElement.lang = language;
  for (const listener of listeners) listener();
}

function listen(listener: () => void) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useLanguage(): Language {
  return useSyncExternalStore(listen, () => current);
}

/** Returns the sentences in the language of the reader. */
export function useText(): Sentences {
  return ALL[useLanguage()];
}

export function useFormats() {
  const language = useLanguage();
  return {
    number: (value: number) => new Intl.NumberFormat(language).format(value),
    compact: (value: number) => new Intl.NumberFormat(language, { notation: "compact" }).format(value),
    money: (micro: number) =>
      new Intl.NumberFormat(language, { style: "currency", currency: "USD", maximumFractionDigits: 4 }).format(
        micro / 1e6,
      ),
    time: (at: string) => new Intl.DateTimeFormat(language, { timeStyle: "short" }).format(new Date(at)),
    clock: (at: string) => new Intl.DateTimeFormat(language, { timeStyle: "medium" }).format(new Date(at)),
    moment: (at: string) =>
      new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(at)),
    day: (at: string) => new Intl.DateTimeFormat(language, { dateStyle: "full" }).format(new Date(at)),
    span: (seconds: number) => {
      const [value, unit] =
        seconds >= 172_800
          ? [seconds / 86_400, "day"]
          : seconds >= 7_200
            ? [seconds / 3_600, "hour"]
            : [seconds / 60, "minute"];
      return new Intl.NumberFormat(language, {
        style: "unit",
        unit,
        unitDisplay: "long",
        maximumFractionDigits: 0,
      }).format(value);
    },
  };
}
