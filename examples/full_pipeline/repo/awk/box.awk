# Wraps the text and draws a box around it. Variables: width (of the text in it).
function rule(    i, text) {
    for (i = 0; i < width + 2; i++) text = text "-"
    return "+" text "+"
}
function row(text) {
    while (length(text) < width) text = text " "
    print "| " text " |"
}
BEGIN { print rule() }
{
    line = ""
    for (i = 1; i <= NF; i++) {
        if (line == "") line = $i
        else if (length(line) + 1 + length($i) <= width) line = line " " $i
        else { row(line); line = $i }
    }
    row(line)
}
END { print rule() }
