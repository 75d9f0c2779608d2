// Keeps the pages of the console fresh. Every page is whole without this: it only spares the owner to load it again.
//
// What changes on a page stands in elements with `data-live` and an id. When the edge tells that something has happened, the
// page is asked for once more, and those elements are taken from it. Nothing here makes markup out of text.
"use strict";

/** Pause before a page is asked for again, so that many events make one request, in milliseconds. */
const PAUSE = 200;
/** Pause after a request that failed, in milliseconds. */
const AWAY = 3000;
/** Characters of a command's output that are kept in the page. */
const OUTPUT_LIMIT = 200000;

const statusWords = document.createElement("p");
statusWords.className = "hidden";
statusWords.setAttribute("role", "status");

/** What is live on the page, as it was served: what has not changed since is left alone, under whatever points at it. */
const served = new Map();

let asked = false;
let running = false;

/** Asks for the page again, soon. */
function refresh() {
  if (asked) return;
  asked = true;
  setTimeout(load, PAUSE);
}

/** Asks for this page as a document. A request of this kind reads markup without running anything of it. */
function load() {
  if (running) {
    setTimeout(load, PAUSE);
    return;
  }
  asked = false;
  running = true;
  const request = new XMLHttpRequest();
  request.open("GET", location.href);
  request.responseType = "document";
  request.onload = () => {
    running = false;
    if (request.status === 401) {
      location.reload();
    } else if (request.status === 200 && request.response) {
      take(request.response);
    }
  };
  request.onerror = () => {
    running = false;
  };
  request.send();
}

/** Takes what is live on the page from a newer one. */
function take(page) {
  if (page.title !== document.title) {
    document.title = page.title;
    statusWords.textContent = page.title;
  }
  for (const old of document.querySelectorAll("[data-live]")) {
    const found = page.getElementById(old.id);
    if (!found) continue;
    if (served.get(old.id) === found.outerHTML) continue;
    served.set(old.id, found.outerHTML);
    const fresh = document.importNode(found, true);
    if (old.hasAttribute("data-keep")) {
      merge(old, fresh);
      continue;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    old.replaceWith(fresh);
    if (focused) document.getElementById(focused)?.focus();
  }
  start();
}

/** Items stay as they are for as long as they are there: the owner may be typing in one, or reading its output. */
function merge(old, fresh) {
  const known = new Map();
  for (const item of [...old.children]) {
    if (item.id && item.matches(".card") && fresh.querySelector(`:scope > #${CSS.escape(item.id)}`)) {
      known.set(item.id, item);
    } else {
      item.remove();
    }
  }
  let next = old.firstElementChild;
  for (const item of [...fresh.children]) {
    if (known.has(item.id)) {
      next = known.get(item.id).nextElementSibling;
    } else {
      item.classList.add("fresh");
      old.insertBefore(item, next);
    }
  }
}

/** What is not seen, or changes how the text around it is seen (as the pages that are served have it). */
const ODD =
  /(?![\n\t ])[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0e\uffa0\ufff0-\ufff8\u{e0000}-\u{e0fff}]/gu;

/** Text of others with everything that the eye would miss made visible. */
function shown(text) {
  return text.replace(ODD, (odd) => {
    if (odd === "\r") return "␍";
    if (odd === "\u001b") return "␛";
    return `U+${odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
  });
}

/** Follows the output of a command until the command has ended or is no longer on the page. */
async function follow(output) {
  while (output.isConnected) {
    const address = `${output.dataset.output}?offset=${output.dataset.offset}&wait=2000`;
    let page;
    try {
      const response = await fetch(address);
      if (!response.ok) throw new Error(response.statusText);
      page = await response.json();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, AWAY));
      continue;
    }
    const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 4;
    output.append(shown(page.output));
    output.normalize();
    while (output.textContent.length > OUTPUT_LIMIT && output.firstChild !== output.lastChild) {
      output.firstChild.remove();
    }
    output.dataset.offset = page.nextOffset;
    if (atEnd) output.scrollTop = output.scrollHeight;
    if (page.status !== "running" && page.nextOffset >= page.totalBytes) {
      refresh();
      return;
    }
  }
}

/** Starts what the elements of the page ask for, each once. */
function start() {
  for (const output of document.querySelectorAll("[data-output]")) {
    if (output.dataset.followed) continue;
    output.dataset.followed = "yes";
    output.scrollTop = output.scrollHeight;
    follow(output);
  }
  for (const time of document.querySelectorAll("time[datetime]")) {
    if (time.dataset.local) continue;
    time.dataset.local = "yes";
    const moment = new Date(time.dateTime);
    time.title = time.textContent;
    time.textContent = moment.toDateString() === new Date().toDateString()
      ? moment.toLocaleTimeString()
      : moment.toLocaleString();
  }
  count();
}

/** Tells how long each item still waits. */
function count() {
  for (const until of document.querySelectorAll("[data-until]")) {
    const seconds = Math.max(0, Math.round((Number(until.dataset.until) - Date.now()) / 1000));
    const told = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} from now`;
    if (until.textContent !== told) until.textContent = told;
  }
}

/** Listens to what happens. A stream that ended is opened again by the browser, and then the page is asked for afresh. */
function listen() {
  const events = new EventSource("/owner/v1/events");
  for (const name of ["receipt", "status", "inbox"]) events.addEventListener(name, refresh);
  events.onopen = refresh;
  events.onerror = () => {
    // Otherwise the browser tries again by itself.
    if (events.readyState !== EventSource.CLOSED) return;
    // Refused for good, as after a restart of the edge: the page says what to do.
    refresh();
    setTimeout(listen, AWAY);
  };
}

document.body.append(statusWords);
for (const live of document.querySelectorAll("[data-live]")) served.set(live.id, live.outerHTML);
setInterval(count, 1000);
start();
listen();
