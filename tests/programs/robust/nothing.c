/* Ends at once, as small programs do that are linked to libc. */
int main(void) {
    return 0;
}
