const space = "http://www.w3.org/2000/svg";

function draw(log) {
  log.querySelector("svg.replies")?.remove();
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("class", "replies");
  picture.setAttribute("height", log.offsetHeight);
  const right = parseFloat(getComputedStyle(log).paddingLeft);
  for (const message of log.querySelectorAll("[data-answers]")) {
    const above = document.getElementById(message.dataset.answers);
    const [start, end] = [above, message].map(each => each.offsetTop + each.offsetHeight / 2);
    // Longer links get wider bows.
    const bow = Math.min(right - 6, 8 + Math.sqrt(end - start) * 2);
    const line = document.createElementNS(space, "path");
    line.setAttribute("d", `M${right} ${start} C${right - bow} ${start} ${right - bow} ${end} ${right} ${end}`);
    line.setAttribute("style", message.getAttribute("style"));
    line.dataset.conversation = message.dataset.conversation;
    picture.append(line);
  }
  log.append(picture);
}

function choose(section, conversation) {
  const chosen = section.dataset.chosen === conversation ? "" : conversation;
  section.dataset.chosen = chosen;
  for (const each of section.querySelectorAll("[data-conversation]"))
    each.classList.toggle("dimmed", chosen !== "" && each.dataset.conversation !== chosen);
}

const logs = document.querySelectorAll(".log");
const drawAll = () => logs.forEach(draw);
drawAll();
addEventListener("resize", drawAll);
addEventListener("click", event => {
  const from = event.target.closest("[data-conversation]:not(.alone)");
  if (from) choose(from.closest("section"), from.dataset.conversation);
});
