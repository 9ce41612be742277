from hypothesis import settings

settings.register_profile(
    "calve", deadline=None, print_blob=True
)  # two cores make any deadline a matter of luck
settings.load_profile("calve")
