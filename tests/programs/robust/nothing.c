/* Exits at once, like a small program that is linked to libc. */
int main(void) {
    return 0;
}
