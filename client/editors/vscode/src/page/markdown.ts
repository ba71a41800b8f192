/**
 * Makes elements of Markdown, without HTML: the elements are made one by one, and text enters them as text only. Raw
 * HTML is shown as it was written, and images as links, since the page may load nothing.
 */

import MarkdownIt, { type Token } from "markdown-it";

import { sanitized } from "../text.js";

const markdown = new MarkdownIt({ html: false });

/** Where a link may lead: VS Code asks before it opens other places than the user trusts. */
const WEB = /^https?:\/\//i;

/** The blocks of a text: paragraphs, lists and so on, each as it was parsed. Equal ones look alike. */
export function blocksOf(text: string): Token[][] {
  const blocks: Token[][] = [];
  for (const token of markdown.parse(text, {})) {
    const begins = token.level === 0 && token.nesting >= 0;
    if (begins) blocks.push([token]);
    else blocks.at(-1)?.push(token);
  }
  return blocks;
}

/** Adds the elements of parsed Markdown to an element. */
export function fill(parent: Element, tokens: readonly Token[]): void {
  const open = [parent];
  for (const token of tokens) {
    const top = open.at(-1) ?? parent;
    if (token.type === "inline") fill(top, token.children ?? []);
    else if (token.nesting < 0) open.pop();
    else if (token.nesting === 0) top.append(leaf(top.ownerDocument, token));
    else if (token.hidden) open.push(top);
    else {
      const element = branch(top.ownerDocument, token);
      top.append(element);
      open.push(element);
    }
  }
}

/** The element for a token that has others within. */
function branch(document: Document, token: Token): HTMLElement {
  const to = attribute(token, "href");
  const element = document.createElement(to && !WEB.test(to) ? "span" : token.tag);
  if (to) element.title = sanitized(to);
  if (to && WEB.test(to)) element.setAttribute("href", to);
  const start = attribute(token, "start");
  if (start) element.setAttribute("start", start);
  return element;
}

function attribute(token: Token, name: string): string {
  return String(token.attrGet(name) ?? "");
}

function leaf(document: Document, token: Token): Node {
  const text = document.createTextNode(sanitized(token.content)); // entities may be invisible characters
  switch (token.type) {
    case "softbreak":
    case "hardbreak":
      return document.createElement("br");
    case "hr":
      return document.createElement("hr");
    case "code_inline":
      return within(document.createElement("code"), text);
    case "code_block":
    case "fence":
      return within(document.createElement("pre"), within(document.createElement("code"), text));
    case "image":
      text.textContent += ` (${sanitized(attribute(token, "src"))})`;
      return text;
    default:
      return text;
  }
}

function within(element: Element, child: Node): Element {
  element.append(child);
  return element;
}
