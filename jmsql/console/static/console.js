// What pages gain with JavaScript: local times, figures that stay current, a key for the search. All reading works without.
"use strict";

(() => {
  const EVERY = 2000;
  const MANY_FAILURES = 3;
  const state = document.getElementById("live-state");
  let tag = null;
  let failures = 0;

  const pad = (number) => String(number).padStart(2, "0");
  const shown = (when) =>
    `${when.getFullYear()}-${pad(when.getMonth() + 1)}-${pad(when.getDate())} ` +
    `${pad(when.getHours())}:${pad(when.getMinutes())}:${pad(when.getSeconds())}`;

  // The server has written UTC, which stays at hand as the title.
  function localize(root) {
    for (const time of root.querySelectorAll("time[datetime]:not([data-local])")) {
      time.dataset.local = "";
      const local = shown(new Date(time.dateTime));
      const utc = time.title;
      time.title = `${local} here, ${utc}`;
      if (!("age" in time.dataset)) time.textContent = local;
    }
  }

  function say(text, isProblem) {
    if (!state) return;
    state.textContent = text;
    state.classList.toggle("error", Boolean(isProblem));
  }

  const live = () => document.getElementById("live");

  function refresh() {
    if (document.visibilityState === "visible" && live() && failures < MANY_FAILURES * 20) htmx.trigger(live(), "refresh");
  }

  document.addEventListener("htmx:configRequest", (event) => {
    if (tag && event.detail.elt === live()) event.detail.headers["If-None-Match"] = tag;
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    // What somebody has opened or is reading by keyboard stays so.
    const inside = live();
    if (inside && event.detail.elt === inside) {
      inside.dataset.open = inside.querySelector("details[open]") ? "yes" : "";
      inside.dataset.focused = inside.contains(document.activeElement) ? document.activeElement.getAttribute("href") || "" : "";
    }
  });

  document.addEventListener("htmx:afterSwap", () => {
    const inside = live();
    if (!inside) return;
    localize(inside);
    if (inside.dataset.open) for (const each of inside.querySelectorAll("details")) each.open = true;
    if (inside.dataset.focused) {
      for (const each of inside.querySelectorAll("a[href]"))
        if (each.getAttribute("href") === inside.dataset.focused) { each.focus({ preventScroll: true }); break; }
    }
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt !== live()) return;
    const status = event.detail.xhr.status;
    if (status === 200 || status === 304) {
      failures = 0;
      tag = event.detail.xhr.getResponseHeader("ETag") || tag;
      // The console answers without its database, too, with what it has seen before.
      if (live().querySelector("[data-not-live]")) say("Not live: the database cannot be looked at. Trying again …", true);
      else say(`Live, ${shown(new Date()).slice(11)}`);
    } else {
      failures += 1;
      if (status === 401 || status === 403 || status === 429) say("Not live: sign in again, then load the page again.", true);
      else if (status === 404) say("Not live: this is gone.", true);
      else if (status === 503) say("Not live: the database does not answer. Trying again …", true);
      else say("Not live: the console does not answer. Trying again …", true);
    }
  });

  document.addEventListener("visibilitychange", refresh);

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const field = document.getElementById("q");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    }
  });

  // How many are chosen, beside their buttons.
  const counted = document.querySelector("form.chosen .count");
  const chosen = () => document.querySelectorAll("form.chosen tbody input:checked").length;
  function count() {
    if (!counted) return;
    counted.classList.remove("error");
    counted.textContent = ` (${chosen()})`;
  }
  if (counted) {
    counted.setAttribute("role", "status");
    counted.closest("form").addEventListener("change", count);
    window.addEventListener("pageshow", count);
  }

  // One box for all messages of the page.
  const corner = document.querySelector("form.chosen th.pick");
  if (corner) {
    const all = document.createElement("input");
    all.type = "checkbox";
    all.setAttribute("aria-label", "Choose all messages of this page");
    all.addEventListener("change", () => {
      for (const box of document.querySelectorAll("form.chosen tbody input[type=checkbox]")) box.checked = all.checked;
      count();
    });
    corner.replaceChildren(all);
  }
  for (const button of document.querySelectorAll("form.chosen button")) {
    button.addEventListener("click", (event) => {
      if (chosen() === 0) {
        event.preventDefault();
        counted.classList.add("error");
        counted.textContent = " (none: tick the boxes of messages first)";
      }
    });
  }

  // The number belongs to the filter that was shown, not to one that is being typed.
  const filter = document.getElementById("filter");
  const shownCount = document.querySelector(".bulk.all .shown");
  if (filter && shownCount) {
    const address = new URLSearchParams(location.search);
    const isShown = () => ["selector", "state"].every((name) => filter.elements[name].value === (address.get(name) || ""));
    filter.addEventListener("input", () => { shownCount.hidden = !isShown(); });
  }

  localize(document);
  if (live()) window.setInterval(refresh, EVERY);
})();
