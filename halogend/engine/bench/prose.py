"""The text whose perplexity is measured: always the same, so that figures of different days can be compared."""

TEXT = """\
The lighthouse on the northern point of the island was built in the year when the harbour was made deeper, and for a
long time nobody lived in it but the keeper, his wife and a goat. Ships that came from the west saw its light from
twenty miles away. Every evening, an hour before sunset, the keeper climbed the stairs, cleaned the glass with a soft
cloth, filled the lamp with oil and wound up the clockwork that turned the lens. Then he wrote the date, the direction
of the wind and the height of the water into a book. When he was old, there were forty of these books, and they filled
a whole shelf in the kitchen.

One winter a young woman from the university came to the island. She wanted to know how the weather had changed, and
she had heard about the books. The keeper made tea, put some bread and cheese on the table, and asked her to sit down.
"You may read all of them," he said, "but you may not take them away. The sea air is bad for paper, but the road is
worse." She stayed for six weeks. In the morning she copied numbers into a table, in the afternoon she walked along the
beach, and in the evening she helped him with the lamp. At the end she drew a picture with a line for every year. The
line went up and down, but over the whole time it rose a little, and the storms had moved from November to January.

How does a lighthouse work? The idea is simple. A small flame sends its light in all directions, and most of it is
lost in the sky or falls on the ground. A lens bends the rays so that they leave the tower as one narrow beam. If the
lens turns around the lamp, a sailor sees a flash each time the beam passes his ship. Because each lighthouse turns at
its own speed, the time between two flashes tells the sailor which one he sees: two flashes every ten seconds is one
place, one flash every five seconds is another. A list of them is printed every year, and every ship has a copy.

Today the light is electric. A small computer switches it on when it gets dark, and sends a message to the mainland if
something is broken. If the first lamp fails, a second one moves into its place; if the power fails, batteries keep
the light going for three days. The computer does not get tired and does not need a goat. But it does not write
anything down about the colour of the water, and it has never pulled anybody out of the sea.

Cooking on the island is simple, too. For a soup you need one onion, two carrots, three potatoes, a litre of water,
some salt and whatever fish the boats have brought. Cut the onion into small pieces and fry it slowly in a little
butter until it is soft. Add the carrots and the potatoes, pour in the water, and let it boil for fifteen minutes. Then
turn down the heat, put in the fish, and wait for another five minutes. Do not stir too much, because the fish would
fall apart. Serve it with bread. Some people add cream, others a spoon of vinegar, and every family is certain that
its own way is the only right one.

In the summer of that year a company wanted to buy the point, pull down the tower and build a hotel. The council met
in the school, because the town hall was too small for everybody who wanted to listen. The man from the company showed
pictures of a swimming pool and spoke about jobs. A fisherman asked how many people would work there in the winter.
The man looked at his papers and said that this depended on many things. Then the young woman from the university
stood up. She told them about the forty books, about the line that rose slowly from year to year, and about the
storms. If the sea kept rising like this, she said, the swimming pool would be full of salt water before it had been
paid for. People laughed, but they also did the sums. When they voted, there were eleven hands for the hotel and one
hundred and sixty-three against it.

The first computers were as large as a room and could do a few thousand additions in a second. Their programs were
holes in cards of stiff paper, and a single wrong hole could spoil a week of work. Memory was so expensive that nobody
stored a number twice. Later machines became smaller and faster, but the old rule stayed: first make it right, then
make it fast, and measure before you believe. A program that is only fast is a quick way to the wrong answer. A program
that is right but slow can be improved a little every day, as long as there are tests that show that it is still right.

The keeper died in the spring, on a quiet day with a light wind from the south-west. He was ninety-one years old. His
last book had an entry for that morning: the date, the wind, the height of the water, and behind it, in small letters,
the words "clear to the horizon". The books are in the library of the university now, in a room where the air is dry.
Whoever wants to read them has to put on white gloves, and sits at a long table under a window. From there one can see
the roofs of the town, the harbour, and, if the weather is good, a small white tower on a rock at the end of the land.
"""
