# Indents each line that is not empty. Variables: n (blanks).
{
    blanks = ""
    for (i = 0; i < n; i++) blanks = blanks " "
    print ($0 == "" ? "" : blanks $0)
}
