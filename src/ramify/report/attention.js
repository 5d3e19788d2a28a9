const space = "http://www.w3.org/2000/svg";
const shownAtLeast = 0.005;

// [query][key]: the weights that a small picture holds, as 16-bit numbers, low byte first.
function weightsOf(picture, numKeys) {
  const bytes = Uint8Array.from(atob(picture.dataset.weights), letter => letter.charCodeAt(0));
  const all = Array.from({ length: bytes.length / 2 }, (_, n) => (bytes[2 * n] + 256 * bytes[2 * n + 1]) / 65535);
  return Array.from({ length: all.length / numKeys }, (_, row) => all.slice(row * numKeys, (row + 1) * numKeys));
}

function setUp(section) {
  const pictures = [...section.querySelectorAll(".heads button")];
  const [queries, keys] = [".queries", ".keys"].map(column => [...section.querySelectorAll(`${column} button`)]);
  const tokens = [...queries, ...keys];
  const lines = section.querySelector(".lines");
  let weights, kept = null, shown = null;

  const middle = token => {
    const box = token.getBoundingClientRect();
    return box.top + box.height / 2 - lines.getBoundingClientRect().top;
  };
  const named = token => `“${token.querySelector("b, bdi").textContent.trim()}”`;

  // The weights between a token and those of the other column.
  function around(token) {
    const query = queries.indexOf(token);
    return query >= 0 ? [keys, weights[query]] : [queries, weights.map(row => row[keys.indexOf(token)])];
  }

  function draw() {
    const [left, right] = [queries, keys].map(column => column.map(middle));
    const width = lines.getBoundingClientRect().width;
    lines.replaceChildren();
    weights.forEach((row, query) => row.forEach((weight, key) => {
      const touches = !shown || shown === queries[query] || shown === keys[key];
      if (weight < shownAtLeast || !touches) return;
      const line = document.createElementNS(space, "path");
      line.setAttribute("d", `M2 ${left[query]}L${width - 2} ${right[key]}`);
      line.setAttribute("opacity", (weight ** (shown ? 0.5 : 0.7)).toFixed(3));
      lines.append(line);
    }));
  }

  function show(token) {
    shown = token;
    for (const each of tokens) {
      each.classList.remove("read");
      each.querySelector("i").textContent = "";
      each.setAttribute("aria-pressed", each === kept);
    }
    const sentence = section.querySelector(".reading");
    sentence.textContent = "";
    if (token) {
      const [others, shares] = around(token);
      others.forEach((other, place) => {
        if (shares[place] < shownAtLeast) return;
        other.classList.add("read");
        other.style.setProperty("--share", (0.75 * Math.sqrt(shares[place])).toFixed(3));
        other.querySelector("i").textContent = shares[place].toFixed(2);
      });
      const best = shares.map((share, place) => [share, place]).filter(([share]) => share >= shownAtLeast);
      best.sort((one, other) => other[0] - one[0]);
      const list = best.slice(0, 5).map(([share, place]) => `${named(others[place])} ${share.toFixed(3)}`).join(", ");
      const verb = queries.includes(token) ? "reads" : "is read by";
      sentence.textContent = `${named(token)} ${verb} ${list || "nothing"}${best.length > 5 ? ", …" : ""}`;
    }
    draw();
  }

  function choose(picture) {
    for (const each of pictures) each.setAttribute("aria-pressed", each === picture);
    section.style.setProperty("--hue", picture.style.getPropertyValue("--hue"));
    section.querySelector("h3").textContent = picture.getAttribute("aria-label");
    weights = weightsOf(picture, keys.length);
    show(kept);
  }

  for (const picture of pictures) picture.addEventListener("click", () => choose(picture));
  for (const token of tokens) {
    token.addEventListener("click", () => { kept = kept === token ? null : token; show(kept ?? token); });
    token.addEventListener("mouseenter", () => show(token));
    token.addEventListener("mouseleave", () => show(kept));
    token.addEventListener("focus", () => show(token));
    token.addEventListener("blur", () => show(kept));
  }
  section.addEventListener("keydown", event => { if (event.key === "Escape") { kept = null; show(null); } });
  addEventListener("resize", draw);
  choose(pictures[0]);
}

document.querySelectorAll(".attention").forEach(setUp);
