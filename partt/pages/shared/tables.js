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
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
