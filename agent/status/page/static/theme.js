// Not a module, and loaded before the style: the page must not flash in the other theme.
"use strict";
{
  const KEY = "federation-agent theme";
  const remembered = localStorage.getItem(KEY);
  if (remembered) document.documentElement.dataset.theme = remembered;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const system = matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
    const show = () => button.setAttribute("aria-pressed", String(isDark()));
    button.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      document.documentElement.dataset.theme = theme;
      localStorage.setItem(KEY, theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  });
}
