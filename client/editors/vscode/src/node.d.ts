/** The little that we use of node beside what the client declares, so that there is no dependency for its types. */

declare module "node:crypto" {
  export function randomUUID(): string;
}

declare module "node:path" {
  export function isAbsolute(path: string): boolean;
  export function join(...parts: string[]): string;
}

declare module "node:fs/promises" {
  export function readFile(path: string, encoding: "utf8"): Promise<string>;
  export function realpath(path: string): Promise<string>;
}

declare function setTimeout(action: () => void, afterMs: number): unknown;
declare function setInterval(action: () => void, everyMs: number): unknown;
declare function clearInterval(interval: unknown): void;
