"use strict";
// Clicking a heading sorts its table: numbers by data-value, the rest as text; again: the other way.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  heads.forEach((head, column) => {
    const sort = () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
      const compare = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const difference = x !== "" && y !== "" ? x - y : NaN;
        return Number.isNaN(difference) ? x.localeCompare(y, undefined, { numeric: true }) : difference;
      };
      const rows = [...table.tBodies[0].rows].sort((a, b) => (ascending ? 1 : -1) * compare(a, b));
      table.tBodies[0].append(...rows);
      table.dispatchEvent(new Event("sorted"));
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}

// Long tables show some rows at a time.
for (const table of document.querySelectorAll("table[data-rows]")) {
  const size = Number(table.dataset.rows), rows = table.tBodies[0].rows;
  if (rows.length <= size) continue;
  const [back, next] = ["‹", "›"].map(text => Object.assign(document.createElement("button"), { textContent: text }));
  const where = document.createElement("span");
  const pager = Object.assign(document.createElement("nav"), { className: "pager" });
  pager.append(back, where, next);
  table.after(pager);
  let first = 0;
  const turn = to => {
    first = Math.max(0, Math.min(to, size * Math.floor((rows.length - 1) / size)));
    [...rows].forEach((row, number) => { row.hidden = number < first || number >= first + size; });
    where.textContent = `${first + 1}–${Math.min(first + size, rows.length)} of ${rows.length}`;
  };
  back.addEventListener("click", () => turn(first - size));
  next.addEventListener("click", () => turn(first + size));
  table.addEventListener("sorted", () => turn(0));
  turn(0);
}
