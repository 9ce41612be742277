"""Parts that every stack uses: functions, their code, roles, topics, small tables."""
