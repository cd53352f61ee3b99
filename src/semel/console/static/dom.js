// Elements are made here, and nowhere from text: whatever a cluster says becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** h("a", {href, class, onclick, css: {left: "3%"}}, ...children); attributes that are null or false are left out. */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) {
      element[name] = value;
      (element.handlers ||= []).push(name);
    } else if (name === "css") {
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else if (name === "data") {
      Object.assign(element.dataset, value);
    } else if (name === "value" && "value" in element) {
      element.value = value;
      element.setAttribute("value", value);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  return append(element, children);
}

/** Makes `before` look like `after` with as few changes as it takes, so that focus, scroll and selection stay. An element
 *  with a `keep` function draws itself, and is only handed the data of its successor. */
export function morph(before, after) {
  if (before.nodeType !== after.nodeType || before.nodeName !== after.nodeName || before.dataset?.key !== after.dataset?.key) {
    before.replaceWith(after);
    return after;
  }
  if (before.nodeType === Node.TEXT_NODE) {
    if (before.data !== after.data) before.data = after.data;
    return before;
  }
  if (before.keep && after.keep && before.kind === after.kind) {
    before.keep(after.given);
    return before;
  }
  if (before.keep || after.keep) {
    before.replaceWith(after);
    return after;
  }
  for (const { name } of [...before.attributes]) {
    if (name !== "style" && name !== "open" && !after.hasAttribute(name)) before.removeAttribute(name);
  }
  for (const { name, value } of [...after.attributes]) {
    if (name !== "style" && name !== "open" && before.getAttribute(name) !== value) before.setAttribute(name, value);
  }
  if (before.style && before.style.cssText !== after.style.cssText) before.style.cssText = after.style.cssText;
  for (const name of before.handlers || []) before[name] = null;
  for (const name of after.handlers || []) before[name] = after[name];
  before.handlers = after.handlers;
  if ("value" in before && before !== document.activeElement && before.nodeName !== "LI" && before.value !== after.value) {
    before.value = after.value;
  }
  const old = [...before.childNodes];
  const next = [...after.childNodes];
  next.forEach((child, index) => (index < old.length ? morph(old[index], child) : before.append(child)));
  old.slice(next.length).forEach((child) => child.remove());
  return before;
}

/** An element that is drawn by `draw(element, given)`, and redrawn with new data instead of replaced. */
export function kept(kind, attributes, given, draw) {
  const element = h("div", attributes);
  element.kind = kind;
  element.given = given;
  element.keep = (next) => {
    element.given = next;
    draw(element, next);
  };
  queueMicrotask(() => requestAnimationFrame(() => draw(element, given)));
  return element;
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** What cannot be seen, or turns the direction of what follows, is spelled out. */
export function visible(text) {
  return String(text).replace(HIDDEN, (char) => "\\u" + char.charCodeAt(0).toString(16).padStart(4, "0"));
}

/** A name of the cluster: in a frame of its own direction. */
export function name(text, attributes) {
  return h("bdi", attributes, visible(text));
}
