/* Only here so that its library is loaded. */
void early_function(void);

int main(void) {
    early_function();
    return 0;
}
