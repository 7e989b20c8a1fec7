# Prints the weekday of each date, which is written YYYY-MM-DD. No variables.
BEGIN { split("Sunday Monday Tuesday Wednesday Thursday Friday Saturday", name, " ") }
{
    split($1, part, "-")
    year = part[1] + 0; month = part[2] + 0; day = part[3] + 0
    if (month < 3) { month += 12; year-- }
    z = day + int(13 * (month + 1) / 5) + year + int(year / 4) - int(year / 100) + int(year / 400)
    print name[(z + 6) % 7 + 1]
}
