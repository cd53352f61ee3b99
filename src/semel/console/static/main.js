// The frame: which address shows which view, keeping it up to date, keyboard and theme.
import { begin, follow, logout, session } from "./api.js";
import { h, morph, svg } from "./dom.js";
import { group, groups } from "./views/groups.js";
import { messages } from "./views/messages.js";
import { node, nodes } from "./views/nodes.js";
import { overview } from "./views/overview.js";
import { topic, topics } from "./views/topics.js";
import { transaction, transactions } from "./views/transactions.js";

const ROUTES = [
  [/^\/$/, [], overview],
  [/^\/topics$/, [], topics],
  [/^\/topics\/([^/]+)\/messages$/, ["name"], messages],
  [/^\/topics\/([^/]+)(?:\/(settings|readers|producers))?$/, ["name", "tab"], topic],
  [/^\/groups$/, [], groups],
  [/^\/groups\/([^/]+)$/, ["name"], group],
  [/^\/transactions$/, [], transactions],
  [/^\/transactions\/([^/]+)$/, ["name"], transaction],
  [/^\/nodes$/, [], nodes],
  [/^\/nodes\/(\d+)$/, ["name"], node],
];

const NAV = [
  ["o", "/", "Overview", "M3 12h4l3-8 4 16 3-8h4"],
  ["t", "/topics", "Topics", "M4 6h16M4 12h16M4 18h10"],
  ["g", "/groups", "Groups", "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zm8 1a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 19c0-3 2-5 5-5s5 2 5 5m2-4c3 0 6 1 6 4"],
  ["x", "/transactions", "Transactions", "M4 8h13l-3-3m6 11H7l3 3"],
  ["n", "/nodes", "Nodes", "M4 5h16v5H4zm0 9h16v5H4zM8 7.5h.01M8 16.5h.01"],
];

const main = document.getElementById("main");
const side = document.getElementById("side");
const problem = document.getElementById("problem");
let showing = null;

// -- addresses

function found(path) {
  for (const [pattern, names, view] of ROUTES) {
    const match = pattern.exec(path);
    if (match) {
      const params = {};
      names.forEach((name, index) => (params[name] = match[index + 1] && decodeURIComponent(match[index + 1])));
      return { view, params };
    }
  }
  return { view: nowhere, params: {} };
}

const nowhere = {
  title: () => "Not found",
  begin: (context) => context.draw(h("div", { class: "empty" }, h("h1", null, "There is no such page"), h("p", null, h("a", { href: "/" }, "Go to the overview")))),
};

export function go(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address);
  show();
}

function show() {
  const { view, params } = found(location.pathname);
  const query = Object.fromEntries(new URLSearchParams(location.search));
  const isSame = showing && showing.path === location.pathname;
  showing?.end?.();
  const now = { path: location.pathname, view, alive: true };
  showing = now;
  const context = {
    params,
    query,
    draw(...content) {
      if (!now.alive) return;
      const next = h("main", { id: "main", tabindex: "-1", class: view.wide && "wide" }, ...content);
      morph(main, next);
    },
    set(changed) {
      const next = { ...query, ...changed };
      const text = new URLSearchParams(Object.entries(next).filter(([, value]) => value !== null && value !== "" && value !== undefined)).toString();
      go(location.pathname + (text ? "?" + text : ""), { replace: true });
    },
    failed(sentence) {
      if (now.alive) fail(sentence);
    },
  };
  document.title = `${view.title(params)} · semel console`;
  drawSide();
  fail(null);
  if (!isSame) {
    main.replaceChildren(h("div", { class: "empty" }, "Loading…"));
    window.scrollTo(0, 0);
    // Who listens to the page hears that it is another one.
    if (document.activeElement !== document.body) main.focus({ preventScroll: true });
  }
  const stop = view.begin ? view.begin(context) : followed(view, context);
  now.end = () => {
    now.alive = false;
    stop?.();
  };
}

function followed(view, context) {
  const [name, query] = view.source(context);
  return follow(`live/${name}`, query, {
    document(document) {
      fail(null);
      context.document = document;
      context.draw(...[view.render(document, context)].flat());
    },
    failed(sentence) {
      fail(sentence);
      if (!context.document) context.draw(h("div", { class: "empty" }, sentence));
    },
  });
}

function fail(sentence) {
  problem.hidden = !sentence;
  problem.textContent = sentence || "";
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
  if (link.origin !== location.origin || link.pathname.startsWith("/static") || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(link.pathname + link.search);
});
window.addEventListener("popstate", show);

// -- the side

function drawSide() {
  const here = location.pathname;
  const links = NAV.map(([key, href, label, path]) =>
    h(
      "a",
      { href, "aria-current": (href === "/" ? here === "/" : here.startsWith(href)) && "page", title: `${label} (g ${key})` },
      svg("svg", { width: 18, height: 18, viewBox: "0 0 24 24", fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" }, svg("path", { d: path })),
      label,
    ),
  );
  const content = h(
    "header",
    { id: "side" },
    h("a", { class: "brand", href: "/", "aria-label": "semel console, overview" }, h("img", { src: "/static/icon.svg", alt: "", width: 26, height: 26 }), "semel"),
    h("nav", { "aria-label": "Views" }, links),
    h(
      "div",
      { class: "foot" },
      h("span", { class: "where", title: "The cluster that is shown" }, session.cluster),
      h("span", { class: "note" }, session.allows_changes ? "Changes are allowed." : "This console only shows."),
      h(
        "div",
        { class: "tools" },
        h("button", { type: "button", class: "quiet", "aria-label": "Dark or light", title: "Dark or light", onclick: turnTheme }, isDark() ? "Light" : "Dark"),
        h("button", { type: "button", class: "quiet", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)", onclick: showKeys }, "?"),
        session.has_login && h("button", { type: "button", class: "quiet", onclick: logout }, "Log out"),
      ),
    ),
  );
  morph(side, content);
}

const darkness = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : darkness.matches);

function turnTheme() {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
  show();
}
darkness.addEventListener("change", drawSide);

// -- keyboard

const KEYS = [
  ["g o, g t, g g, g x, g n", "overview, topics, groups, transactions, nodes"],
  ["/", "search or filter"],
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["d", "dark or light"],
  ["?", "this list"],
];

function showKeys() {
  const element = h(
    "dialog",
    { "aria-label": "Keyboard shortcuts" },
    h("form", { method: "dialog" }, h("h2", null, "Keyboard"), h("dl", { class: "facts" }, KEYS.map(([keys, what]) => [h("dt", null, keys.split(", ").map((key, index) => [index ? " " : null, h("kbd", null, key)])), h("dd", null, what)])), h("div", { class: "buttons" }, h("button", { class: "primary" }, "Close"))),
  );
  element.onclose = () => element.remove();
  document.body.append(element);
  element.showModal();
}

let pending = "";

function step(by) {
  const rows = [...main.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a, button"));
  if (!rows.length) return;
  const now = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.min(rows.length - 1, Math.max(0, now + by))];
  next.querySelector("a, button").focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select, dialog") || event.metaKey || event.ctrlKey || event.altKey) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (pending === "g") {
    pending = "";
    const target = NAV.find(([key]) => key === event.key);
    if (target) go(target[1]);
    return;
  }
  const actions = {
    g: () => (pending = "g"),
    "/": () => main.querySelector("[data-search]")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    d: turnTheme,
    "?": showKeys,
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});

try {
  await begin();
  show();
} catch (error) {
  fail(error.message);
}
