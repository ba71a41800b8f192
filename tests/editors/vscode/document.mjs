/** As much of a document as the page of the chat needs, to read what it shows and to press its buttons. */

/** Elements that flow within a row. */
const INLINE = new Set(["#text", "a", "br", "code", "em", "s", "span", "strong"]);

class Element {
  childNodes = [];
  listeners = {};
  hidden = false;
  open = true;
  value = "";
  className = "";
  #text = "";
  scrollHeight = 0;
  scrollTop = 0;
  clientHeight = 0;

  attributes = {};

  constructor(name) {
    this.name = name;
    if (name === "br") this.#text = "\n";
  }

  get tagName() {
    return this.name.toUpperCase();
  }

  get ownerDocument() {
    return factory;
  }

  setAttribute(name, value) {
    this.attributes[name] = value;
  }

  set textContent(text) {
    this.#text = text;
    this.childNodes = [];
  }

  get textContent() {
    return this.#text + this.childNodes.map((one) => one.textContent).join("");
  }

  get lastChild() {
    return this.childNodes.at(-1);
  }

  append(...others) {
    for (const one of others) one.parent = this;
    this.childNodes.push(...others);
  }

  replaceChildren(...others) {
    this.childNodes = [];
    this.append(...others);
  }

  remove() {
    this.parent.childNodes = this.parent.childNodes.filter((one) => one !== this);
  }

  addEventListener(name, listener) {
    this.listeners[name] = listener;
  }

  dispatch(name, event = {}) {
    this.listeners[name]?.({ preventDefault() {}, ...event });
  }

  /** The lines that a user sees. */
  get rows() {
    if (this.hidden) return [];
    if (this.name === "button") return [`[${this.textContent}]`];
    if (this.name === "textarea") return this.value ? [`> ${this.value}`] : [];
    const own = this.childNodes.length === 0 || this.#text ? [this.textContent] : [];
    const closed = this.name === "details" && !this.open;
    if (closed) return [`▸ ${this.childNodes[0].textContent}`];
    return [...own.filter(Boolean), ...this.#rowsOfChildren()];
  }

  #rowsOfChildren() {
    const rows = [];
    let flows = false;
    for (const one of this.childNodes) {
      if (!INLINE.has(one.name)) rows.push(...one.rows);
      else if (flows) rows.push(rows.pop() + one.textContent);
      else rows.push(one.textContent);
      flows = INLINE.has(one.name);
    }
    return rows;
  }

  /** The elements within, each as its name and attributes, and text as text. */
  get tree() {
    if (this.name === "#text") return this.textContent;
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}=${value}`);
    return [`${this.name}${attributes.join("")}`, ...this.childNodes.map((one) => one.tree)];
  }

  /** The elements that a user sees. */
  get visible() {
    return this.hidden ? [] : [this, ...this.childNodes.flatMap((one) => one.visible)];
  }
}

const factory = {
  createElement: (name) => new Element(name),
  createTextNode: (text) => Object.assign(new Element("#text"), { textContent: text }),
};

/** A document with the elements that have an id in this HTML, in their order. */
export function documentOf(html) {
  const ids = [...html.matchAll(/<(\w+) id="(\w+)"[^>]*>([^<]*)/g)];
  const body = new Element("body");
  const byId = new Map();
  for (const [, name, id, text] of ids) {
    const element = new Element(name);
    element.textContent = text.trim();
    byId.set(id, element);
    body.append(element);
  }
  return { body, getElementById: (id) => byId.get(id), ...factory };
}
