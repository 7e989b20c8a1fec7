# Repeats each line. Variables: n (how often).
{
    text = ""
    for (i = 0; i < n; i++) text = text $0
    print text
}
