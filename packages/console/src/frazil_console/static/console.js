// Keeps the cells of the rows on this page current. The server sends the HTML of each cell that has changed. A row out of view
// is changed when it comes into view, when its state changes, or when the page is printed; all rows are once a minute.
"use strict";

const box = document.querySelector("[data-live]");

if (box) {
  const rows = new Map();
  for (const row of document.querySelectorAll("tr[data-table]")) rows.set(row.dataset.table, row);
  const state = box.querySelector("[data-live-state]");
  const button = box.querySelector("[data-live-pause]");
  const announce = document.querySelector("[data-announce]");
  let version = box.dataset.live;
  let source = null;
  let isPaused = false;
  const shown = new Set();
  const waiting = new Map();

  const fill = (row) => {
    for (const [place, html] of Object.entries(waiting.get(row) || {})) {
      const cell = row.cells[Number(place) + 1];
      // Somebody reads it, or is about to follow its link.
      if (!cell.contains(document.activeElement)) cell.innerHTML = html;
    }
    waiting.delete(row);
  };
  const fillAll = () => { for (const row of [...waiting.keys()]) fill(row); };

  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) { shown.add(target); fill(target); } else shown.delete(target);
    }
  }, { rootMargin: "50%" });
  for (const row of rows.values()) observer.observe(row);
  addEventListener("beforeprint", fillAll);
  setInterval(fillAll, 60000);

  const show = (event) => {
    version = event.lastEventId || version;
    const news = [];
    for (const [name, cells] of Object.entries(JSON.parse(event.data))) {
      const row = rows.get(name);
      if (!row) continue;
      waiting.set(row, { ...waiting.get(row), ...cells });
      if (!shown.has(row) && !("0" in cells)) continue;
      const before = stateOf(row);
      fill(row);
      if (stateOf(row) !== before) news.push(`${name}: ${stateOf(row)}`);
    }
    if (news.length) announce.textContent = news.slice(0, 5).join(", ");
    if (state.textContent !== "live") state.textContent = "live";
  };

  const stateOf = (row) => row.cells[1].firstElementChild.textContent;

  const close = () => {
    if (source) source.close();
    source = null;
  };

  const follow = () => {
    if (source || isPaused || document.hidden) return;
    source = new EventSource(`/events?after=${version}`);
    source.addEventListener("rows", show);
    source.onopen = () => { state.textContent = "live"; };
    source.onerror = () => {
      state.textContent = "not connected";
      if (source && source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(follow, 15000);
      }
    };
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.setAttribute("aria-pressed", String(isPaused));
    state.textContent = isPaused ? "paused" : "live";
    if (isPaused) close(); else follow();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else follow(); });
  box.hidden = false;
  follow();
}
