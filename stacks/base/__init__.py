"""Parts that every stack uses: functions and their code, roles, rotations, small resources."""
