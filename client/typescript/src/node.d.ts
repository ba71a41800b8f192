/** The little that we use of node, so that there is no dependency for its types. */

declare module "node:child_process" {
  interface Readable {
    setEncoding(encoding: "utf8"): void;
    on(event: "data", listener: (text: string) => void): void;
  }
  interface Writable {
    write(text: string): boolean;
    end(): void;
    on(event: "error", listener: () => void): void;
  }
  export interface ChildProcess {
    stdin: Writable;
    stdout: Readable;
    stderr: Readable | null;
    on(event: "error", listener: (error: Error) => void): void;
    on(event: "close", listener: (status: number | null) => void): void;
  }
  export function spawn(
    program: string,
    args: readonly string[],
    options: { stdio: readonly string[]; env?: Record<string, string | undefined> },
  ): ChildProcess;
}
