/**
 * The part of VS Code's interface that the extension uses, without an editor: what the extension does is reported, and
 * what a user would choose or type is taken from `user.answers`.
 */

import path from "node:path";

export const user = {
  /** What the user chooses (the beginning of a label) or types, in order; without one, a question is dismissed. */
  answers: [],
  settings: {},
  folders: [],
  documents: [],
  editor: undefined,
  visible: true,
  report: () => {},
};

export class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}

export class Range {
  constructor(start, end) {
    Object.assign(this, { start, end });
  }
}

export class Uri {
  static from({ scheme, path }) {
    return Object.assign(new Uri(), { scheme, path, fsPath: path });
  }
  static file(name) {
    return Uri.from({ scheme: "file", path: name });
  }
  static joinPath(uri, ...parts) {
    return Uri.file(path.join(uri.path, ...parts));
  }
  toString() {
    return `${this.scheme}://${this.path}`;
  }
}

export const StatusBarAlignment = { Left: 1, Right: 2 };

const registered = new Map();
let documents;
export let chat;

export const commands = {
  registerCommand: (name, action) => registered.set(name, action),
  async executeCommand(name, ...given) {
    if (registered.has(name)) return registered.get(name)(...given);
    if (name === "vscode.diff") {
      const [before, after] = given.slice(0, 2).map((uri) => documents.provideTextDocumentContent(uri));
      user.report({ compared: { before, after, title: given[2] } });
    } else if (name === "vscode.changes") {
      user.report({ compared: { count: given[1].length, title: given[0] } });
    } else if (name !== "setContext") user.report({ executed: name });
  },
};

const asks = (kind) => async (message, ...rest) => {
  const buttons = rest.filter((one) => typeof one === "string");
  user.report({ [kind]: message });
  return buttons.length > 0 && user.answers[0] === buttons[0] ? user.answers.shift() : undefined;
};

export const window = {
  get activeTextEditor() {
    return user.editor;
  },
  createStatusBarItem: () => ({
    show() {},
    dispose() {},
    set text(text) {
      user.report({ bar: text });
    },
  }),
  showErrorMessage: asks("error"),
  showWarningMessage: asks("warning"),
  async showQuickPick(items, { placeHolder }) {
    user.report({ offered: { title: placeHolder, labels: items.map(({ label }) => label) } });
    const wanted = user.answers.shift();
    return wanted === undefined ? undefined : items.find(({ label }) => label.startsWith(wanted));
  },
  async showInputBox({ prompt }) {
    user.report({ prompt });
    return user.answers.shift();
  },
  async showTextDocument(uri, { selection } = {}) {
    user.report({ opened: { path: uri.path, line: (selection?.start.line ?? 0) + 1 } });
  },
  registerWebviewViewProvider(_, provider) {
    chat = provider;
    return { dispose() {} };
  },
};

export const workspace = {
  get workspaceFolders() {
    return user.folders.map((name) => ({ uri: Uri.file(name) }));
  },
  get textDocuments() {
    return user.documents;
  },
  getConfiguration: () => ({ get: (name) => user.settings[name] }),
  getWorkspaceFolder: (uri) => workspace.workspaceFolders.find((one) => uri.path.startsWith(one.uri.path)),
  asRelativePath: (uri) => path.relative(user.folders[0], uri.path),
  registerTextDocumentContentProvider(_, provider) {
    documents = provider;
    return { dispose() {} };
  },
};
