"""Who calls, who answers, and what each may do: TLS, roles and bearer tokens."""
