(() => {
  const { levels, ranges, nodes } = JSON.parse(document.getElementById("vector-tree").textContent);
  const root = document.querySelector(".vector-tree");
  const part = (name) => root.querySelector(`.${name}`);
  const canvas = part("strips"), context = canvas.getContext("2d");
  const HEIGHT = 46, GAP = 2, LISTED = 400, LEAST = 20;
  const KINDS = { score: "How well a node's children fit together", fit: "How well a node fits among its siblings" };
  const children = nodes.map(() => []);
  nodes.forEach((node, place) => { if (node.parent !== null) children[node.parent].push(place); });
  const top = nodes.findIndex((node) => node.parent === null);
  let kind = "score", chosen = top, pointed = null;

  const element = (name, content = "", attributes = {}) => {
    const made = document.createElement(name);
    made.textContent = content;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  };
  const number = (value) => value === undefined || value === null ? "–" : value.toFixed(3);
  const scores = (node) => `inside ${number(node.score)} · fits among its siblings ${number(node.fit)}`;
  const mix = (share) => {
    const style = getComputedStyle(root);
    const [low, high] = ["--low", "--high"].map((name) => style.getPropertyValue(name).trim());
    // By way of a neutral colour in the middle.
    const [end, part] = share < 0.5 ? [low, 1 - 2 * share] : [high, 2 * share - 1];
    return `color-mix(in oklab, hsl(${end}) ${(100 * part).toFixed(1)}%, hsl(${style.getPropertyValue("--middle")}))`;
  };
  const STEPS = 32;
  let shades = [];
  const mixShades = () => { shades = Array.from({ length: STEPS + 1 }, (_, step) => mix(step / STEPS)); };
  const shade = (share) => shades[Math.round(STEPS * Math.min(1, Math.max(0, share)))];
  const share = (place) => {
    const node = nodes[place], range = ranges[kind][node.level], value = node[kind];
    if (value === undefined || !range) return null;
    return range[1] > range[0] ? (value - range[0]) / (range[1] - range[0]) : 0.5;
  };
  const colour = (place) => {
    const found = share(place);
    return found === null ? `hsl(${getComputedStyle(root).getPropertyValue("--empty")})` : shade(found);
  };
  const name = (place) => {
    const node = nodes[place];
    return `${levels[node.level]} ${node.id}${node.title ? `: ${node.title}` : ""}`;
  };
  const around = (place) => {
    const found = [];
    for (let each = place; each !== null; each = nodes[each].parent) found.unshift(each);
    return found;
  };

  // --- strips ---

  const strip = (level) => levels.length - 1 - level;
  const bounds = () => {
    const { start, stop } = nodes[chosen];
    return [start, Math.max(stop, start + 1)];
  };
  const draw = () => {
    const width = canvas.clientWidth, height = levels.length * (HEIGHT + GAP), scale = window.devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    const [first, last] = bounds(), ratio = width / (last - first);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    nodes.forEach((node, place) => {
      if (node.stop < first || node.start > last) return;
      const left = Math.max(0, (node.start - first) * ratio), right = Math.min(width, (node.stop - first) * ratio);
      if (right - left < 0.15) return;
      const y = strip(node.level) * (HEIGHT + GAP);
      const gap = right - left > 4 ? 1 : 0;
      context.fillStyle = colour(place);
      context.fillRect(left, y, right - left - gap, HEIGHT);
      if (place === pointed) {
        context.strokeStyle = getComputedStyle(root).color;
        context.lineWidth = 2;
        context.strokeRect(left + 1, y + 1, Math.max(1, right - left - gap - 2), HEIGHT - 2);
      }
      if (right - left > 54) {
        context.save();
        context.beginPath();
        context.rect(left, y, right - left - 6, HEIGHT);
        context.clip();
        context.fillStyle = share(place) === null ? getComputedStyle(root).color : "#fff";
        context.fillText(node.title || node.text || name(place), left + 6, y + HEIGHT / 2);
        context.restore();
      }
    });
  };
  const at = (event) => {
    const box = canvas.getBoundingClientRect(), [first, last] = bounds();
    const row = Math.floor((event.clientY - box.top) / (HEIGHT + GAP));
    const x = first + (event.clientX - box.left) / box.width * (last - first);
    const found = nodes.findIndex((node) => strip(node.level) === row && node.start <= x && x < node.stop);
    return found < 0 ? null : found;
  };

  // --- the chosen node ---

  const list = () => {
    const box = part("chosen"), node = nodes[chosen];
    box.replaceChildren(
      element("h3", name(chosen)),
      element("p", scores(node), { class: "scores-line" }),
    );
    if (node.tokens || node.text) {
      const words = element("p", "", { class: "words" });
      const scored = node.tokens && node.tokens.some(([, score]) => score !== null);
      if (scored) {
        for (const [token, score] of node.tokens) {
          const inside = token.startsWith("##");
          const made = element("span", inside ? token.slice(2) : token.replace(/^[▁Ġ]/, ""), { title: number(score) });
          if (score !== null) made.style.background = `color-mix(in srgb, ${shade(score)} 30%, transparent)`;
          words.append(inside ? "" : " ", made);
        }
      } else words.textContent = node.text;
      box.append(words);
    }
    const least = leastInside();
    if (least.length) {
      const folded = element("details");
      folded.append(element("summary", "The least coherent inside"), listed(least, true));
      box.append(folded);
    }
    box.append(listed(children[chosen].slice(0, LISTED), false));
    const more = children[chosen].length - LISTED;
    if (more > 0) box.append(element("p", `${more} more; click them in the strips.`));
  };
  const listed = (places, named) => {
    const shown = element("ol");
    for (const place of places) {
      const item = element("li"), found = nodes[place];
      item.style.borderColor = colour(place);
      const words = found.title || opening(place);
      const button = element("button", named ? `${levels[found.level]} ${found.id}: ${words}` : words, { type: "button" });
      button.addEventListener("click", () => choose(place));
      item.append(element("span", `fits ${number(found.fit)}\ninside ${number(found.score)}`), button);
      shown.append(item);
    }
    return shown;
  };
  // Below the children, which are listed anyway. The scores of levels compare by their places in their ranges.
  const leastInside = () => {
    const found = [];
    const waiting = [...children[chosen]];
    while (waiting.length) {
      const place = waiting.pop();
      waiting.push(...children[place]);
      if (nodes[place].parent !== chosen && share(place) !== null) found.push(place);
    }
    return found.sort((one, other) => share(one) - share(other) || one - other).slice(0, LEAST);
  };
  const opening = (place) => {
    let node = nodes[place], below = place;
    while (!node.text && children[below].length) { below = children[below][0]; node = nodes[below]; }
    const words = node.text || "(no text)";
    return words.length > 220 ? `${words.slice(0, 219)}…` : words;
  };
  const choose = (place) => {
    chosen = place;
    pointed = null;
    part("path").replaceChildren(...around(place).map((each) => {
      const button = element("button", nodes[each].title || `${levels[nodes[each].level]} ${nodes[each].id}`, {
        type: "button", "aria-pressed": String(each === place),
      });
      button.addEventListener("click", () => choose(each));
      return button;
    }));
    part("pointed").textContent = "";
    draw();
    list();
  };

  // --- colours ---

  const legend = () => {
    part("choice").replaceChildren(...Object.entries(KINDS).filter(([each]) => ranges[each].some(Boolean)).map(([each, title]) => {
      const button = element("button", title, { type: "button", "aria-pressed": String(each === kind) });
      button.addEventListener("click", () => { kind = each; legend(); draw(); list(); });
      return button;
    }));
    part("ranges").replaceChildren(...levels.map((level, place) => [level, ranges[kind][place]]).reverse()
      .filter(([, range]) => range).map(([level, range]) => {
        const made = element("span", level), ramp = element("i");
        ramp.style.background = `linear-gradient(to right, ${shades.filter((_, step) => step % 8 === 0).join(", ")})`;
        made.append(` ${range[0].toFixed(3)}`, ramp, range[1].toFixed(3));
        return made;
      }));
  };

  canvas.addEventListener("mousemove", (event) => {
    const place = at(event);
    if (place === pointed) return;
    pointed = place;
    part("pointed").textContent = place === null ? "" :
      `${name(place)} · ${scores(nodes[place])} · ${opening(place)}`;
    draw();
  });
  canvas.addEventListener("mouseleave", () => { pointed = null; draw(); });
  canvas.addEventListener("click", (event) => {
    const place = at(event);
    if (place === null) return;
    choose(place === chosen && nodes[place].parent !== null ? nodes[place].parent : place);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && nodes[chosen].parent !== null) choose(nodes[chosen].parent);
  });
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { mixShades(); legend(); draw(); list(); });
  mixShades();
  legend();
  if (top >= 0) choose(top);
})();
