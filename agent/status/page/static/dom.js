/** Creates elements and changes their text: names come from users, so everything is text and never markup. */

const SVG = "http://www.w3.org/2000/svg";
// Bidi overrides and invisible characters: with them a name could look like another one.
const HIDDEN = /[\p{Cc}\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]/gu;

const READ = new Set(["title", "aria-label"]);

export const visible = (words) => words.replace(HIDDEN, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

export function h(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else set(node, name, value);
  }
  const given = children.flat().filter((child) => child !== null && child !== undefined);
  node.append(...given.map((child) => (typeof child === "string" ? visible(child) : child)));
  return node;
}

/** Sets an attribute if it differs; false and null remove it. */
export function set(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else {
    const wanted = value === true ? "" : READ.has(name) ? visible(String(value)) : String(value);
    if (node.getAttribute(name) !== wanted) node.setAttribute(name, wanted);
  }
}

/** Sets the text if it differs, so that unchanged elements need no new layout. */
export function text(node, value) {
  const shown = visible(String(value));
  if (node.childNodes.length === 1 && node.firstChild.nodeType === Node.TEXT_NODE) {
    if (node.firstChild.data !== shown) node.firstChild.data = shown;
  } else if (shown !== "" || node.childNodes.length > 0) {
    node.textContent = shown;
  }
}

export const byId = (id) => document.getElementById(id);

/** An address may be broken after its parts, never within a port. */
export const partsOf = (words) => words.split(/(?<=[./@])|(?=:\d)/);

export const address = (words) => partsOf(words).flatMap((part, at) => (at === 0 ? [part] : [h("wbr"), part]));
