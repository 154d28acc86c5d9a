"""Pictures of the paper's items: each module has ``draw(rows_by_study, findings)``, which returns figures by name."""
