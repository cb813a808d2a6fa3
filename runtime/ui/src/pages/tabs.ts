// The parts of the page of shared knowledge.
export const TABS = ["records", "skills", "resources"] as const;
export type Tab = (typeof TABS)[number];
export const isTab = (value: unknown): value is Tab => TABS.some((tab) => tab === value);
