"""What a browser measures of a page: who can use it, what sticks out of it, how much work it is."""

from __future__ import annotations

from importlib import resources
from typing import Final

from playwright.sync_api import Page

AXE: Final = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
TICKS: Final = 3
# The paths take 0.6 s longer than others; `moved` holds what has been pushed up or down since the page began.
SLOWLY: Final = """(paths) => {
  const timed = window.setTimeout;  // the page shows rows after 3 s anyway, which isn't what is looked at
  window.setTimeout = (call, ms, ...more) => timed(call, ms === 3000 ? 60000 : ms, ...more);
  const fetched = window.fetch;
  window.fetch = async (path, ...others) => {
    if (paths.includes(path)) await new Promise((done) => setTimeout(done, 600));
    return fetched(path, ...others);
  };
  window.moved = [];
  const nameOf = (node) => node?.id || node?.className || node?.nodeName;
  new PerformanceObserver((list) => {
    const sources = list.getEntries().flatMap((entry) => entry.sources);
    const ways = sources.map((each) => [nameOf(each.node), each.previousRect.top, each.currentRect.top]);
    window.moved.push(...ways.filter(([, before, after]) => before !== after));
  }).observe({ type: "layout-shift", buffered: true });
}"""
AFTER_FRAMES: Final = """(frames) => new Promise((done) => {
  requestAnimationFrame(function next() {
    frames -= 1;
    if (frames > 0) requestAnimationFrame(next);
    else setTimeout(done);
  });
})"""


def check_accessible(page: Page, rules: dict[str, object] | None = None) -> None:
    """Themes differ in colours alone, so one of them is looked at for nothing else."""
    page.evaluate(AXE)
    found = page.evaluate("(options) => axe.run(options)", {"resultTypes": ["violations"]} | (rules or {}))
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]] == []


class Work:
    """What the page's main thread has worked since; a clock on the wall would tell how busy the machine is. The least
    of a few times is what counts, as others may have the caches."""

    def __init__(self, page: Page) -> None:
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._begun = self._total()

    def seconds(self) -> float:
        return self._total() - self._begun

    def _total(self) -> float:
        metrics = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
