# Takes the blanks away around each line. No variables.
{
    sub(/^[ \t]+/, "")
    sub(/[ \t]+$/, "")
    print
}
