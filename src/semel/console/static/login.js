// Exchanges the password for a session cookie.
const form = document.getElementById("login");
const refusal = document.getElementById("refusal");

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  refusal.textContent = "";
  const answer = await fetch("/api/login", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ password: form.password.value }),
  });
  if (answer.ok) location.href = "/";
  else refusal.textContent = (await answer.json()).error;
});
