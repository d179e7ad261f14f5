/** Makes elements and changes their text: names come from users, so all of it is text and none of it markup. */

const SVG = "http://www.w3.org/2000/svg";

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
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets an attribute where it differs; false and null remove it. */
export function set(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value === true ? "" : value);
}

/** Sets the text where it differs: what did not change is not laid out again. */
export function text(node, value) {
  const shown = String(value);
  if (node.childNodes.length === 1 && node.firstChild.nodeType === Node.TEXT_NODE) {
    if (node.firstChild.data !== shown) node.firstChild.data = shown;
  } else if (shown !== "" || node.childNodes.length > 0) {
    node.textContent = shown;
  }
}

export const byId = (id) => document.getElementById(id);
