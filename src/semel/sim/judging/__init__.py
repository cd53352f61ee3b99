"""From a history to the anomalies in it: pure functions, nearly linear in its length. `report.judge` asks them all."""
