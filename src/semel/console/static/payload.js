// Keys and values: JSON in colours, text as it is, bytes as hex.
import { h, visible } from "./dom.js";

const MOST_TOKENS = 4000;
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;

export function pretty(value) {
  let text = value.text;
  let isJson = false;
  if (!value.is_cut && /^\s*[[{"]/.test(text)) {
    try {
      // Numbers that a double cannot hold would be changed: then the text stays as it came.
      const parsed = JSON.parse(text);
      if (!/\d{16,}/.test(text)) text = JSON.stringify(parsed, null, 2);
      isJson = true;
    } catch {
      // It only looks like it.
    }
  }
  return h("pre", { class: "payload", tabindex: "0" }, isJson ? coloured(text) : text.split("\n").map((line, index) => (index ? "\n" : "") + visible(line)));
}

function coloured(text) {
  const parts = [];
  let end = 0;
  for (const found of text.matchAll(TOKEN)) {
    if (parts.length > MOST_TOKENS) break;
    parts.push(text.slice(end, found.index));
    const [whole, string, colon] = found;
    const kind = string ? (colon ? "json-key" : "json-string") : found[3] !== undefined ? "json-number" : "json-word";
    const shown = string || whole;
    parts.push(h("span", { class: kind }, visible(shown)), colon || "");
    end = found.index + whole.length;
  }
  parts.push(text.slice(end));
  return parts;
}

/** Sixteen bytes to a line: where they are, as numbers, and as letters. */
export function bytes(value) {
  const lines = [];
  for (let at = 0; at < Math.min(value.hex.length, 8192); at += 32) {
    const pairs = value.hex.slice(at, at + 32).match(/../g) || [];
    const letters = pairs.map((pair) => {
      const code = parseInt(pair, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : "·";
    });
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return h("pre", { class: "payload hex", tabindex: "0" }, lines.join("\n"));
}
