// Before anything is drawn: the theme that was chosen, or that of the system.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
