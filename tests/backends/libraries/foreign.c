/* A shared library that is no back end. */
int nothing(void);
int nothing(void) { return 0; }
