# install(TARGETS) of the public libraries is appended here once they exist.
